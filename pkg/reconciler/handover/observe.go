package handover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/scheduling"
	"github.com/13eedeaf/kcp/pkg/status"
)

// DefaultDrainDeadline is how long open connections may go on at the old side where the
// Placement does not say.
const DefaultDrainDeadline = 5 * time.Minute

var (
	pods           = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	services       = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	claims         = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	deployments    = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	replicaSets    = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	statefulSets   = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	daemonSets     = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	jobs           = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	cronJobs       = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}
	ingresses      = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}
	endpointSlices = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
)

// placing lists the resources whose presence makes a namespace need a place.
var placing = []schema.GroupVersionResource{
	deployments, statefulSets, daemonSets, pods, services, ingresses, claims, jobs, cronJobs,
}

// mirrored lists the resources that syncers mirror up.
var mirrored = []schema.GroupVersionResource{pods, replicaSets, endpointSlices}

type objects = informer.Informer[*unstructured.Unstructured]

// mirroredFrom returns the key of the target that mirrored obj up, "" for a tenant's own
// object.
func mirroredFrom(obj *unstructured.Unstructured) string {
	return obj.GetLabels()[workloadv1alpha1.TargetLabelKey]
}

// own returns the tenant's own objects of a resource in a namespace.
func (c *Controller) own(gvr schema.GroupVersionResource, key logicalcluster.Key) []*unstructured.Unstructured {
	all := c.objects[gvr].ListNamespace(key.Cluster, key.Name)
	out := all[:0]
	for _, obj := range all {
		if mirroredFrom(obj) == "" && !systemObject(gvr, obj) {
			out = append(out, obj)
		}
	}
	return out
}

// systemObject reports whether obj stands in every cluster and says nothing of a
// tenant's wishes.
func systemObject(gvr schema.GroupVersionResource, obj *unstructured.Unstructured) bool {
	return gvr == services && obj.GetNamespace() == metav1.NamespaceDefault && obj.GetName() == "kubernetes"
}

// observed is what a namespace looks like, and what was decided for it.
type observed struct {
	state    *State
	decision scheduling.Result
	gates    map[string]Gate
}

// observe looks at a namespace and decides; ok is false when it has no part in placement.
func (c *Controller) observe(ctx context.Context, key logicalcluster.Key) (o observed, ok bool) {
	in, s, gates, ok := c.look(ctx, key)
	if !ok {
		return observed{}, false
	}
	return observed{state: s, decision: scheduling.Decide(in), gates: gates}, true
}

// look returns all that a decision for a namespace, and a plan, depend on.
func (c *Controller) look(ctx context.Context, key logicalcluster.Key) (in scheduling.Input, s *State, gates map[string]Gate, ok bool) {
	namespace, exists := c.namespaces.Get(key.Cluster, "", key.Name)
	assignments := c.assignments.ListNamespace(key.Cluster, key.Name)
	if !exists || strings.HasPrefix(key.Name, "kube-") {
		return in, nil, nil, false
	}
	s = c.state(key, namespace, assignments)
	held, empty := c.contents(key, s)
	if len(assignments) == 0 && (empty || s.Deleting) {
		return in, nil, nil, false
	}
	gates = Gates(s)
	decided := scheduling.PlacementFor(c.placements.ListCluster(key.Cluster), namespace.Labels)
	if decided != nil {
		s.Placement = decided.Name
		if d := decided.Spec.DrainDeadline; d != nil {
			s.DrainDeadline = d.Duration
		}
		if d := decided.Spec.UnreachableToleration; d != nil {
			s.Toleration = d.Duration
		}
	}
	in = scheduling.Input{
		Cluster: key.Cluster, Namespace: key.Name,
		Placement:  decided,
		Locations:  c.fleet.EffectiveLocations(ctx, key.Cluster),
		Target:     s.Target,
		Namespaces: c.fleet.Namespaces,
		Current:    Currents(s, gates),
		Held:       held, Empty: empty,
		ListeningSince: c.fleet.HearingSince(s.Now),
		Now:            s.Now,
	}
	return in, s, gates, true
}

func (c *Controller) state(key logicalcluster.Key, namespace *corev1.Namespace, assignments []*schedulingv1alpha1.Assignment) *State {
	now := c.clock.Now()
	s := &State{
		Deleting:       namespace.DeletionTimestamp != nil,
		Assignments:    assignments,
		HasIngress:     slices.ContainsFunc(c.own(ingresses, key), ServedByGateways),
		Gateways:       c.leases.List(now),
		Target:         c.fleet.TargetAt(now),
		DrainDeadline:  DefaultDrainDeadline,
		DeadlineOf:     func(a *schedulingv1alpha1.Assignment) time.Time { return c.deadlines.at(a, now) },
		ListeningSince: c.fleet.ListeningSince(now),
		Now:            now,
	}
	for _, a := range assignments {
		if a.Spec.DrainDeadline != nil {
			// It counts from now, not from when the gateways have taken notice.
			c.deadlines.at(a, now)
		}
	}
	s.GatewayReports = c.gatewayReports.ListNamespace(key.Cluster, key.Name)
	if len(assignments) == 0 {
		return s
	}
	s.Reports = c.reports.ListNamespace(key.Cluster, key.Name)
	s.HasEndpoints = s.HasIngress && c.hasEndpoints(key)
	return s
}

// contents finds the workloads of a namespace, why it may not be moved, and whether there
// is nothing in it that runs.
func (c *Controller) contents(key logicalcluster.Key, s *State) (held string, empty bool) {
	empty = true
	holders := map[hold][]string{}
	for _, gvr := range placing {
		for _, obj := range c.own(gvr, key) {
			empty = false
			if status.Gates(obj) && obj.GetDeletionTimestamp() == nil {
				s.Workloads = append(s.Workloads, Workload{Resource: gvr.GroupResource(), Object: obj})
			}
			h := holdOf(gvr, obj)
			holders[h] = append(holders[h], fmt.Sprintf("%s %q", obj.GetKind(), obj.GetName()))
		}
	}
	return heldBy(holders), empty
}

// hasEndpoints reports whether any target has an endpoint, ready or not, of a Service
// that an Ingress of the namespace names.
func (c *Controller) hasEndpoints(key logicalcluster.Key) bool {
	named := map[string]bool{}
	for _, ingress := range c.own(ingresses, key) {
		if !ServedByGateways(ingress) {
			continue
		}
		for _, name := range backends(ingress) {
			named[name] = true
		}
	}
	for _, slice := range c.objects[endpointSlices].ListNamespace(key.Cluster, key.Name) {
		endpoints, _, _ := unstructured.NestedFieldNoCopy(slice.Object, "endpoints")
		list, _ := endpoints.([]any)
		a, ok := c.assignments.Get(key.Cluster, key.Name, mirroredFrom(slice))
		if len(list) > 0 && ok && a.ServedByGateways() && named[slice.GetLabels()[discoveryv1.LabelServiceName]] {
			return true
		}
	}
	return false
}

// ServedByGateways reports whether gateways have a say about an Ingress: those of another class are
// for a controller in the physical cluster.
func ServedByGateways(ingress *unstructured.Unstructured) bool {
	var className *string
	if name, ok, _ := unstructured.NestedString(ingress.Object, "spec", "ingressClassName"); ok {
		className = &name
	}
	return networkingv1alpha1.ServesIngress(className, ingress.GetAnnotations())
}

// backends returns the names of the Services that an Ingress sends traffic to.
func backends(ingress *unstructured.Unstructured) []string {
	var spec networkingv1.IngressSpec
	raw, _, _ := unstructured.NestedMap(ingress.Object, "spec")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &spec); err != nil {
		return nil
	}
	var out []string
	add := func(b *networkingv1.IngressBackend) {
		if b != nil && b.Service != nil {
			out = append(out, b.Service.Name)
		}
	}
	add(spec.DefaultBackend)
	for _, rule := range spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for i := range rule.HTTP.Paths {
			add(&rule.HTTP.Paths[i].Backend)
		}
	}
	return out
}
