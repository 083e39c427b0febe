// Package admission holds the rules for Workspace objects and for the logical clusters
// behind them, as one plugin of k8s.io/apiserver's admission chain.
//
// The server alone decides what a new workspace is: it draws the logical cluster's id,
// sets the URL and records the creator, whatever the client sent. Afterwards none of it
// changes; an update that leaves such a field out keeps it, one that changes it is
// refused. The server itself may name another owner and use types that are the server's:
// that is how homes are made.
//
// Nothing new is created in a workspace that is being deleted, so that its deletion
// ends.
package admission

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/storage/names"

	corev1alpha1 "github.com/13eedeaf/kcp/pkg/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/workspaces"
)

// PluginName is the plugin's name in flags and logs.
const PluginName = "kcp.io/Workspace"

var (
	workspacesResource      = schema.GroupResource{Group: tenancyv1alpha1.GroupVersion.Group, Resource: "workspaces"}
	logicalClustersResource = schema.GroupResource{Group: corev1alpha1.GroupVersion.Group, Resource: "logicalclusters"}

	// virtual groups have kinds that are created to ask something and are not kept.
	virtual = sets.New("authentication.k8s.io", "authorization.k8s.io")
)

// Tree is what the plugin asks of the workspace tree; *workspaces.Index is one.
type Tree interface {
	Path(cluster logicalcluster.Name) (logicalcluster.Path, bool)
	Ancestors(cluster logicalcluster.Name) []logicalcluster.Name
	Workspace(cluster logicalcluster.Name) (*tenancyv1alpha1.Workspace, bool)
	Resolve(ctx context.Context, path logicalcluster.Path) (logicalcluster.Name, error)
}

// GetType reads a WorkspaceType; a NotFound error says that there is none.
type GetType func(ctx context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.WorkspaceType, error)

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler

	tree        Tree
	getType     GetType
	externalURL string
	fromServer  FromServer
	newID       func() logicalcluster.Name
}

// FromServer reports whether the server itself sent a request, over its loopback
// connection. The user's name does not say: who may impersonate could take it.
type FromServer func(ctx context.Context) bool

var (
	_ admission.MutationInterface   = &Plugin{}
	_ admission.ValidationInterface = &Plugin{}
	_ Tree                          = &workspaces.Index{}
)

// New returns the plugin. externalURL is the server's address without a path, from
// which the URLs of workspaces are made.
func New(tree Tree, getType GetType, externalURL string, fromServer FromServer) *Plugin {
	return &Plugin{
		Handler:     admission.NewHandler(admission.Create, admission.Update, admission.Delete),
		tree:        tree,
		getType:     getType,
		externalURL: externalURL,
		fromServer:  fromServer,
		newID:       logicalcluster.NewID,
	}
}

// Admit sets what the server decides.
func (p *Plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != workspacesResource || a.GetSubresource() != "" {
		return nil
	}
	ws, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return nil // a deletion
	}
	if a.GetOperation() == admission.Create {
		return p.admitCreate(ctx, a, ws)
	}
	if old, ok := a.GetOldObject().(*unstructured.Unstructured); ok && a.GetOperation() == admission.Update {
		return keep(ws, old)
	}
	return nil
}

func (p *Plugin) admitCreate(ctx context.Context, a admission.Attributes, ws *unstructured.Unstructured) error {
	parent, err := logicalcluster.FromContext(ctx)
	if err != nil {
		return err
	}
	path, ok := p.tree.Path(parent)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("logical cluster %q is no workspace, so it has no children", parent))
	}
	typ, err := p.typeFor(ctx, parent, path, ws, p.fromServer(ctx))
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if ws.GetName() == "" && ws.GetGenerateName() != "" {
		// The URL needs the name, which the registry would only generate later.
		ws.SetName(names.SimpleNameGenerator.GenerateName(ws.GetGenerateName()))
	}
	path = path.Join(ws.GetName())

	annotations := ws.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if !p.fromServer(ctx) || annotations[tenancyv1alpha1.OwnerAnnotationKey] == "" {
		owner, err := workspaces.EncodeOwner(a.GetUserInfo())
		if err != nil {
			return err
		}
		annotations[tenancyv1alpha1.OwnerAnnotationKey] = owner
	}
	annotations[logicalcluster.PathAnnotationKey] = path.String()
	ws.SetAnnotations(annotations)

	if finalizers := ws.GetFinalizers(); !slices.Contains(finalizers, tenancyv1alpha1.WorkspaceFinalizer) {
		ws.SetFinalizers(append(finalizers, tenancyv1alpha1.WorkspaceFinalizer))
	}
	if ws.Object["spec"] == nil { // absent, or null
		ws.Object["spec"] = map[string]any{}
	}
	for _, field := range []struct {
		value any
		path  []string
	}{
		{typ, []string{"spec", "type"}},
		{string(p.newID()), []string{"spec", "cluster"}},
		{p.externalURL + path.RequestPath(), []string{"spec", "URL"}},
	} {
		if err := unstructured.SetNestedField(ws.Object, field.value, field.path...); err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	return nil
}

// immutable are the fields that the server sets once.
var immutable = [][]string{
	{"spec", "type"},
	{"spec", "cluster"},
	{"spec", "URL"},
	{"metadata", "annotations", tenancyv1alpha1.OwnerAnnotationKey},
	{"metadata", "annotations", logicalcluster.PathAnnotationKey},
}

// keep restores what an update leaves out, so that a manifest without server-set fields
// can be applied again.
func keep(ws, old *unstructured.Unstructured) error {
	if ws.Object["spec"] == nil { // absent, or null
		delete(ws.Object, "spec")
	}
	for _, field := range immutable {
		if _, ok, _ := unstructured.NestedFieldNoCopy(ws.Object, field...); ok {
			continue
		}
		value, ok, err := unstructured.NestedFieldCopy(old.Object, field...)
		if err != nil || !ok {
			continue
		}
		if err := unstructured.SetNestedField(ws.Object, value, field...); err != nil {
			return fmt.Errorf("workspace %q: %w", ws.GetName(), err)
		}
	}
	return nil
}

// Validate refuses what breaks the rules.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if p.fromServer(ctx) {
		return nil
	}
	switch a.GetResource().GroupResource() {
	case logicalClustersResource:
		return admission.NewForbidden(a, fmt.Errorf("LogicalClusters are written by the server; delete the Workspace object in the parent workspace instead"))
	case workspacesResource:
		if a.GetSubresource() == "status" {
			// A phase that went back to Initializing would have the server make what a new
			// workspace begins with once more, the creator's rights among it.
			return admission.NewForbidden(a, fmt.Errorf("the status of a Workspace is written by the server"))
		}
		if err := validateUpdate(a); err != nil {
			return err
		}
	}
	if a.GetOperation() == admission.Create {
		return p.refuseWhenDeleting(ctx, a)
	}
	return nil
}

func validateUpdate(a admission.Attributes) error {
	if a.GetOperation() != admission.Update {
		return nil
	}
	ws, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	old, ok := a.GetOldObject().(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	for _, field := range immutable {
		before, _, _ := unstructured.NestedFieldNoCopy(old.Object, field...)
		after, _, _ := unstructured.NestedFieldNoCopy(ws.Object, field...)
		if !equal(before, after) {
			return admission.NewForbidden(a, fmt.Errorf("%s is set by the server at creation and never changes", join(field)))
		}
	}
	if slices.Contains(old.GetFinalizers(), tenancyv1alpha1.WorkspaceFinalizer) && !slices.Contains(ws.GetFinalizers(), tenancyv1alpha1.WorkspaceFinalizer) {
		return admission.NewForbidden(a, fmt.Errorf("finalizer %q is removed by the server, once the workspace's content is gone", tenancyv1alpha1.WorkspaceFinalizer))
	}
	return nil
}

// refuseWhenDeleting keeps new objects out of a workspace that is being deleted.
func (p *Plugin) refuseWhenDeleting(ctx context.Context, a admission.Attributes) error {
	if virtual.Has(a.GetResource().Group) || a.GetSubresource() != "" {
		return nil
	}
	cluster, err := logicalcluster.FromContext(ctx)
	if err != nil {
		return err
	}
	if ws, ok := p.tree.Workspace(cluster); ok && ws.DeletionTimestamp != nil {
		return admission.NewForbidden(a, fmt.Errorf("workspace %q is being deleted", ws.Annotations[logicalcluster.PathAnnotationKey]))
	}
	return nil
}

// NewGetType returns a GetType that reads with lookup, and with get what lookup does
// not hold (yet).
func NewGetType(lookup func(cluster logicalcluster.Name, namespace, name string) (*tenancyv1alpha1.WorkspaceType, bool), get func(ctx context.Context, cluster logicalcluster.Name, name string, opts metav1.GetOptions) (*tenancyv1alpha1.WorkspaceType, error)) GetType {
	return func(ctx context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.WorkspaceType, error) {
		if typ, ok := lookup(cluster, "", name); ok {
			return typ, nil
		}
		return get(ctx, cluster, name, metav1.GetOptions{})
	}
}
