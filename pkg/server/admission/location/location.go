// Package location guards which SyncTargets a Location may select.
//
// A Location may name another workspace that holds its targets (spec.targetWorkspace).
// Whoever writes that must have the verb "use" on synctargets there: otherwise a tenant,
// admin of a workspace of their own, could reach clusters that nobody gave them.
//
// What was allowed is recorded on the Location, by the id of the logical cluster (MayUse).
// A path alone would not do: the workspace can be deleted and another made under its name,
// whose owner has allowed nothing.
package location

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/server/authz"
)

// UseVerb on synctargets in a workspace lets a user point Locations at it.
const UseVerb = "use"

// AllowedAnnotationKey names the annotation that holds the logical cluster whose
// SyncTargets a Location may select. The plugin sets it; what a client sends under this
// key is overwritten.
const AllowedAnnotationKey = "scheduling.kcp.io/allowed-target-cluster"

var resource = schema.GroupResource{Group: schedulingv1alpha1.GroupVersion.Group, Resource: "locations"}

// Authorizer decides in the logical cluster of the context.
type Authorizer = authorizer.UnconditionalAuthorizer

// Resolver finds a workspace by its path.
type Resolver interface {
	Resolve(ctx context.Context, path logicalcluster.Path) (logicalcluster.Name, error)
}

// MayUse reports whether a Location may select the SyncTargets of another cluster:
// whether somebody who may use them has said so.
func MayUse(location *schedulingv1alpha1.Location, targets logicalcluster.Name) bool {
	return location.Annotations[AllowedAnnotationKey] == string(targets)
}

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	resolver   Resolver
	authorizer Authorizer
}

var _ admission.MutationInterface = &Plugin{}

// New returns the plugin.
func New(resolver Resolver, authorizer Authorizer) *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update), resolver: resolver, authorizer: authorizer}
}

// Admit refuses a targetWorkspace that the user may not use, that does not exist, or is
// no path, and records the one that is allowed. Who changes nothing of the spec is not
// asked: what was recorded stays.
func (p *Plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != resource || a.GetSubresource() != "" {
		return nil
	}
	location, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	allowed, err := p.allowed(ctx, a, location)
	if err != nil {
		return err
	}
	annotations := location.GetAnnotations()
	if annotations[AllowedAnnotationKey] == allowed {
		return nil
	}
	if allowed == "" {
		delete(annotations, AllowedAnnotationKey)
	} else {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[AllowedAnnotationKey] = allowed
	}
	location.SetAnnotations(annotations)
	return nil
}

// allowed returns the cluster to record, "" for none.
func (p *Plugin) allowed(ctx context.Context, a admission.Attributes, location *unstructured.Unstructured) (string, error) {
	target, _, err := unstructured.NestedString(location.Object, "spec", "targetWorkspace")
	if err != nil || target == "" {
		return "", nil //nolint:nilerr // what is no string is refused by the schema
	}
	cluster, err := p.mayUse(ctx, a, target)
	if err == nil {
		return string(cluster), nil
	}
	if old, ok := a.GetOldObject().(*unstructured.Unstructured); ok && apiequality.Semantic.DeepEqual(old.Object["spec"], location.Object["spec"]) {
		return old.GetAnnotations()[AllowedAnnotationKey], nil
	}
	return "", err
}

// mayUse resolves target and asks whether the user may use its SyncTargets.
func (p *Plugin) mayUse(ctx context.Context, a admission.Attributes, target string) (logicalcluster.Name, error) {
	path, err := logicalcluster.ParsePath(target)
	if err != nil {
		return "", apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), field.ErrorList{
			field.Invalid(field.NewPath("spec", "targetWorkspace"), target, err.Error()),
		})
	}
	// A workspace that does not exist and one that may not be used look the same.
	refused := admission.NewForbidden(a, fmt.Errorf("spec.targetWorkspace: you may not use the SyncTargets of %q: its owner can grant verb %q on synctargets.%s there", target, UseVerb, workloadv1alpha1.GroupVersion.Group))
	cluster, err := p.resolver.Resolve(ctx, path)
	if apierrors.IsNotFound(err) {
		return "", refused
	}
	if err != nil {
		return "", err
	}
	err = authz.Allowed(ctx, p.authorizer, cluster, authorizer.AttributesRecord{
		User:       a.GetUserInfo(),
		Verb:       UseVerb,
		APIGroup:   workloadv1alpha1.GroupVersion.Group,
		APIVersion: workloadv1alpha1.GroupVersion.Version,
		Resource:   "synctargets",
	})
	if apierrors.IsForbidden(err) {
		return "", refused
	}
	if err != nil {
		return "", err
	}
	return cluster, nil
}
