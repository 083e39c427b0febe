// Package resources lists what a syncer can copy to a physical cluster, and how each
// kind behaves there. It is a table and knows no client.
package resources

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
)

// Resource is one kind of object.
type Resource struct {
	schema.GroupVersionResource
	Kind string
	// Confidential resources are read and written only in the syncer's own namespaces,
	// through RoleBindings that it makes there.
	Confidential bool
	// Observes says that the kind's controllers always write status.observedGeneration:
	// without it the status speaks of nothing yet.
	Observes bool
	// RunsOnce says that an object of the kind ends, and that making it anew would run
	// it again.
	RunsOnce bool
	// Workload says that an object of the kind is a pod or makes pods.
	Workload bool
}

// String is group-qualified, e.g. deployments.apps.
func (r Resource) String() string { return r.GroupResource().String() }

// GroupVersionKind returns the kind with its version.
func (r Resource) GroupVersionKind() schema.GroupVersionKind {
	return r.GroupVersion().WithKind(r.Kind)
}

func gvr(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

// Resources with a name of their own in the syncer.
var (
	Pods           = Resource{GroupVersionResource: gvr("", "v1", "pods"), Kind: "Pod", RunsOnce: true, Workload: true}
	Secrets        = Resource{GroupVersionResource: gvr("", "v1", "secrets"), Kind: "Secret", Confidential: true}
	ConfigMaps     = Resource{GroupVersionResource: gvr("", "v1", "configmaps"), Kind: "ConfigMap", Confidential: true}
	EndpointSlices = Resource{GroupVersionResource: gvr("discovery.k8s.io", "v1", "endpointslices"), Kind: "EndpointSlice"}
	ReplicaSets    = Resource{GroupVersionResource: gvr("apps", "v1", "replicasets"), Kind: "ReplicaSet"}
	SyncReports    = Resource{GroupVersionResource: workloadv1alpha1.GroupVersion.WithResource("syncreports"), Kind: "SyncReport"}
	Assignments    = Resource{GroupVersionResource: schedulingv1alpha1.GroupVersion.WithResource("assignments"), Kind: "Assignment"}
)

// defaults is what is synced where the SyncTarget does not say.
var defaults = []Resource{
	ConfigMaps,
	Secrets,
	{GroupVersionResource: gvr("", "v1", "services"), Kind: "Service"},
	{GroupVersionResource: gvr("", "v1", "serviceaccounts"), Kind: "ServiceAccount"},
	{GroupVersionResource: gvr("", "v1", "persistentvolumeclaims"), Kind: "PersistentVolumeClaim"},
	Pods,
	{GroupVersionResource: gvr("apps", "v1", "deployments"), Kind: "Deployment", Observes: true, Workload: true},
	{GroupVersionResource: gvr("apps", "v1", "statefulsets"), Kind: "StatefulSet", Observes: true, Workload: true},
	{GroupVersionResource: gvr("apps", "v1", "daemonsets"), Kind: "DaemonSet", Observes: true, Workload: true},
	{GroupVersionResource: gvr("batch", "v1", "jobs"), Kind: "Job", RunsOnce: true, Workload: true},
	{GroupVersionResource: gvr("batch", "v1", "cronjobs"), Kind: "CronJob", Workload: true},
	{GroupVersionResource: gvr("networking.k8s.io", "v1", "ingresses"), Kind: "Ingress"},
	{GroupVersionResource: gvr("networking.k8s.io", "v1", "networkpolicies"), Kind: "NetworkPolicy"},
	{GroupVersionResource: gvr("policy", "v1", "poddisruptionbudgets"), Kind: "PodDisruptionBudget", Observes: true},
}

// Synced returns the resources that a SyncTarget with the given spec.resources syncs:
// those of the table that it names, or all. A resource that is not in the table is an
// error that names it; the others are returned nevertheless.
func Synced(wanted []workloadv1alpha1.GroupResource) ([]Resource, error) {
	if len(wanted) == 0 {
		return append([]Resource(nil), defaults...), nil
	}
	names := map[schema.GroupResource]bool{}
	for _, w := range wanted {
		names[schema.GroupResource{Group: w.Group, Resource: w.Resource}] = true
	}
	var out []Resource
	for _, r := range defaults {
		if names[r.GroupResource()] {
			out = append(out, r)
			delete(names, r.GroupResource())
		}
	}
	for name := range names {
		return out, fmt.Errorf("this syncer cannot sync resource %q of the sync target's spec.resources", name)
	}
	return out, nil
}
