package server

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	storeerrors "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/rbac"
	namespaceregistry "k8s.io/kubernetes/pkg/registry/core/namespace"
	serviceaccountregistry "k8s.io/kubernetes/pkg/registry/core/serviceaccount"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding"

	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/reconciler/workspace"
	"github.com/13eedeaf/kcp/pkg/server/storage"
)

// content writes and reads what logical clusters hold, a cluster at a time, past the
// API: that is one transaction where requests would be one for each object.
type content struct {
	registry *storage.Registry
	client   *clientv3.Client
}

var workspacesResource = clients.WorkspacesResource.GroupResource()

// fill is workspace.Deps' Fill.
func (c content) fill(ctx context.Context, cluster logicalcluster.Name, objects []informer.Object, ws *tenancyv1alpha1.Workspace) error {
	creates := make([]storage.Object, len(objects))
	for n, obj := range objects {
		var err error
		if creates[n], err = newObject(ctx, cluster, obj); err != nil {
			return err
		}
	}
	changed, err := c.withStatus(ctx, ws)
	if err != nil {
		return err
	}
	return c.registry.Fill(ctx, c.client, creates, changed)
}

// withStatus returns the stored Workspace with the status of ws, which has the rest of
// it from an informer, hence not whole.
func (c content) withStatus(ctx context.Context, ws *tenancyv1alpha1.Workspace) (storage.Object, error) {
	parent := logicalcluster.From(ws)
	stored := &unstructured.Unstructured{}
	// The watch cache is never behind an informer that reads from it.
	if err := c.registry.Reader(workspacesResource).Get(logicalcluster.WithCluster(ctx, parent), "", ws.Name, stored); err != nil {
		return storage.Object{}, storeerrors.InterpretGetError(err, workspacesResource, ws.Name)
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&ws.Status)
	if err != nil {
		return storage.Object{}, fmt.Errorf("cannot encode the status of workspace %q: %w", ws.Name, err)
	}
	// If it is newer than ws by now, the version makes the write fail, as it should.
	stored = stored.DeepCopy()
	stored.SetResourceVersion(ws.ResourceVersion)
	stored.Object["status"] = status
	return storage.Object{Cluster: parent, Resource: workspacesResource, Object: stored}, nil
}

// newObject does to a new object what its registry does at creation.
func newObject(ctx context.Context, cluster logicalcluster.Name, obj informer.Object) (storage.Object, error) {
	obj = obj.DeepCopyObject().(informer.Object)
	rest.FillObjectMetaSystemFields(obj)
	switch obj := obj.(type) {
	case *corev1.Namespace:
		return nativeObject(ctx, cluster, core.Resource("namespaces"), namespaceregistry.Strategy, obj, &core.Namespace{})
	case *corev1.ServiceAccount:
		return nativeObject(ctx, cluster, core.Resource("serviceaccounts"), serviceaccountregistry.Strategy, obj, &core.ServiceAccount{})
	case *rbacv1.ClusterRoleBinding:
		return nativeObject(ctx, cluster, rbac.Resource("clusterrolebindings"), clusterrolebinding.Strategy, obj, &rbac.ClusterRoleBinding{})
	default:
		return customObject(cluster, obj)
	}
}

// nativeObject makes an object of the internal type in out.
func nativeObject(ctx context.Context, cluster logicalcluster.Name, gr schema.GroupResource, strategy rest.RESTCreateStrategy, obj informer.Object, out informer.Object) (storage.Object, error) {
	legacyscheme.Scheme.Default(obj)
	if err := legacyscheme.Scheme.Convert(obj, out, nil); err != nil {
		return storage.Object{}, fmt.Errorf("cannot convert %s %q: %w", gr, obj.GetName(), err)
	}
	// Upstream asks the request for these.
	ctx = genericrequest.WithNamespace(ctx, obj.GetNamespace())
	ctx = genericrequest.WithRequestInfo(ctx, &genericrequest.RequestInfo{
		IsResourceRequest: true, Verb: "create",
		APIGroup: gr.Group, APIVersion: "v1", Resource: gr.Resource, Namespace: obj.GetNamespace(), Name: obj.GetName(),
	})
	if err := rest.BeforeCreate(strategy, ctx, out); err != nil {
		return storage.Object{}, err
	}
	return storage.Object{Cluster: cluster, Resource: gr, Object: out}, nil
}

// customResources are those of the product's kinds that clusters begin with. Their
// schemas have no defaults.
var customResources = map[string]schema.GroupVersionResource{
	"LogicalCluster": clients.LogicalClustersResource,
	"Placement":      clients.PlacementsResource,
}

func customObject(cluster logicalcluster.Name, obj informer.Object) (storage.Object, error) {
	kinds, _, err := clients.Scheme.ObjectKinds(obj)
	if err != nil {
		return storage.Object{}, err
	}
	gvr, ok := customResources[kinds[0].Kind]
	if !ok {
		return storage.Object{}, fmt.Errorf("new clusters have no %s", kinds[0].Kind)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return storage.Object{}, fmt.Errorf("cannot encode %s %q: %w", kinds[0].Kind, obj.GetName(), err)
	}
	out := &unstructured.Unstructured{Object: fields}
	out.SetGroupVersionKind(kinds[0])
	out.SetGeneration(1)
	return storage.Object{Cluster: cluster, Resource: gvr.GroupResource(), Object: out}, nil
}

// read is workspace.Deps' Content.
func (c content) read(ctx context.Context, cluster logicalcluster.Name, skip func(schema.GroupResource) bool) (workspace.Content, error) {
	found, err := c.registry.Content(ctx, c.client, cluster, skip)
	if err != nil {
		return workspace.Content{}, err
	}
	out := workspace.Content{Unread: found.Unread}
	for _, f := range found.Finalized {
		out.Finalized = append(out.Finalized, workspace.Finalized{Resource: f.Resource, Object: f.Object})
	}
	out.Delete = func(ctx context.Context, ws *tenancyv1alpha1.Workspace) error {
		if ws == nil {
			return c.registry.DeleteCluster(ctx, c.client, found, nil)
		}
		revision, err := strconv.ParseInt(ws.ResourceVersion, 10, 64)
		if err != nil {
			return fmt.Errorf("workspace %q has resource version %q: %w", ws.Name, ws.ResourceVersion, err)
		}
		return c.registry.DeleteCluster(ctx, c.client, found, &storage.Owner{
			Cluster: logicalcluster.From(ws), Resource: workspacesResource, Name: ws.Name, Revision: revision,
		})
	}
	return out, nil
}
