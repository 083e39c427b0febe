// Package location guards which SyncTargets a Location may select.
//
// A Location may name another workspace that holds its targets (spec.targetWorkspace).
// Whoever writes that must have the verb "use" on synctargets there: otherwise a tenant,
// admin of a workspace of their own, could reach clusters that nobody gave them.
package location

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/server/authn"
)

// UseVerb on synctargets in a workspace lets a user point Locations at it.
const UseVerb = "use"

var resource = schema.GroupResource{Group: schedulingv1alpha1.GroupVersion.Group, Resource: "locations"}

// Authorizer decides in the logical cluster of the context.
type Authorizer = authorizer.UnconditionalAuthorizer

// Resolver finds a workspace by its path.
type Resolver interface {
	Resolve(ctx context.Context, path logicalcluster.Path) (logicalcluster.Name, error)
}

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	resolver   Resolver
	authorizer Authorizer
}

var _ admission.ValidationInterface = &Plugin{}

// New returns the plugin.
func New(resolver Resolver, authorizer Authorizer) *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update), resolver: resolver, authorizer: authorizer}
}

// Validate refuses a targetWorkspace that the user may not use, does not exist, or is no
// path. What was there before is not asked about again.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != resource || a.GetSubresource() != "" {
		return nil
	}
	target, err := targetWorkspace(a.GetObject())
	if err != nil || target == "" {
		return err
	}
	if old, err := targetWorkspace(a.GetOldObject()); a.GetOldObject() != nil && (err != nil || old == target) {
		return err
	}
	path, err := logicalcluster.ParsePath(target)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("spec.targetWorkspace: %v", err))
	}
	refused := admission.NewForbidden(a, fmt.Errorf("spec.targetWorkspace: you may not use the SyncTargets of %q: its owner can grant verb %q on synctargets.%s there", target, UseVerb, workloadv1alpha1.GroupVersion.Group))
	cluster, err := p.resolver.Resolve(ctx, path)
	if apierrors.IsNotFound(err) {
		return refused
	}
	if err != nil {
		return err
	}
	allowed, err := p.mayUse(ctx, a.GetUserInfo(), cluster)
	if err != nil {
		return err
	}
	if !allowed {
		return refused
	}
	return nil
}

func (p *Plugin) mayUse(ctx context.Context, u user.Info, cluster logicalcluster.Name) (bool, error) {
	// A service account is somebody else in another cluster.
	if home, ok := authn.ClusterOf(u); ok && home != cluster {
		return false, nil
	}
	decision, _, err := p.authorizer.Authorize(logicalcluster.WithCluster(ctx, cluster), authorizer.AttributesRecord{
		User:            u,
		Verb:            UseVerb,
		APIGroup:        workloadv1alpha1.GroupVersion.Group,
		APIVersion:      workloadv1alpha1.GroupVersion.Version,
		Resource:        "synctargets",
		ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow, err
}

func targetWorkspace(obj runtime.Object) (string, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return "", nil
	}
	value, _, err := unstructured.NestedString(u.Object, "spec", "targetWorkspace")
	return value, err
}
