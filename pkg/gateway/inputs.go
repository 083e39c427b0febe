package gateway

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/gateway/report"
	"github.com/13eedeaf/kcp/pkg/gateway/table"
	"github.com/13eedeaf/kcp/pkg/informer"
)

// kinds are those of the resources that the gateway writes.
var kinds = map[string]string{report.Reports: "GatewayReport", report.Instances: "GatewayInstance"}

// inputs follow what tables are made from, and remember which namespaces changed.
type inputs struct {
	streams     *streams
	ingresses   *informer.Informer[*networkingv1.Ingress]
	services    *informer.Informer[*corev1.Service]
	assignments *informer.Informer[*schedulingv1alpha1.Assignment]
	slices      *informer.Informer[*discoveryv1.EndpointSlice]
	claims      *informer.Informer[*networkingv1alpha1.HostClaim]
	// reports are this gateway's own.
	reports *informer.Informer[*networkingv1alpha1.GatewayReport]

	// changed has an element when there is reason to look.
	changed chan struct{}
	mu      sync.Mutex
	dirty   map[table.NamespaceKey]bool
}

// newInputs returns inputs that Run starts. name is that of this gateway's reports.
func newInputs(c *client, name string) *inputs {
	in := &inputs{changed: make(chan struct{}, 1), dirty: map[table.NamespaceKey]bool{}}
	in.streams = newStreams(in.signal)
	in.ingresses = follow[*networkingv1.Ingress](in, c, networkingv1.SchemeGroupVersion, "ingresses")
	in.services = follow[*corev1.Service](in, c, corev1.SchemeGroupVersion, "services")
	in.assignments = follow[*schedulingv1alpha1.Assignment](in, c, schedulingv1alpha1.GroupVersion, "assignments")
	in.slices = follow[*discoveryv1.EndpointSlice](in, c, discoveryv1.SchemeGroupVersion, "endpointslices")
	in.claims = follow[*networkingv1alpha1.HostClaim](in, c, networkingv1alpha1.GroupVersion, "hostclaims")
	// Tables do not wait for this stream.
	own := newStreams(func() {}).track(report.Reports, c.watch(networkingv1alpha1.GroupVersion, report.Reports),
		func(o informer.Object) bool { return o.GetName() == name })
	in.reports = informer.New[*networkingv1alpha1.GatewayReport](report.Reports, informer.Stream(own), nil)
	return in
}

// follow returns an informer whose changes make namespaces dirty.
func follow[T informer.Object](in *inputs, c *client, gv schema.GroupVersion, resource string) *informer.Informer[T] {
	open := in.streams.track(resource, c.watch(gv, resource), func(informer.Object) bool { return true })
	i := informer.New[T](resource, informer.Stream(open), nil)
	i.AddHandler(func(e informer.Event[T]) {
		in.mark(table.NamespaceKey{Cluster: e.Key.Cluster, Namespace: e.Key.Namespace})
	})
	return i
}

// run follows the server until ctx ends.
func (in *inputs) run(ctx context.Context) {
	var group sync.WaitGroup
	for _, run := range []func(context.Context){in.ingresses.Run, in.services.Run, in.assignments.Run, in.slices.Run, in.claims.Run, in.reports.Run} {
		group.Go(func() { run(ctx) })
	}
	group.Wait()
}

// synced reports whether the whole state was here once.
func (in *inputs) synced() bool {
	return in.ingresses.HasSynced() && in.services.HasSynced() && in.assignments.HasSynced() && in.slices.HasSynced() && in.claims.HasSynced()
}

func (in *inputs) signal() {
	select {
	case in.changed <- struct{}{}:
	default:
	}
}

func (in *inputs) mark(key table.NamespaceKey) {
	in.mu.Lock()
	in.dirty[key] = true
	in.mu.Unlock()
	in.signal()
}

// pending reports whether namespaces changed since the last build.
func (in *inputs) pending() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.dirty) > 0
}

// build returns the new state of the namespaces that changed since the last call.
func (in *inputs) build() map[table.NamespaceKey]*table.Namespace {
	in.mu.Lock()
	dirty := in.dirty
	in.dirty = map[table.NamespaceKey]bool{}
	in.mu.Unlock()
	out := make(map[table.NamespaceKey]*table.Namespace, len(dirty))
	for key := range dirty {
		out[key] = table.BuildNamespace(key, table.Inputs{
			Ingresses:   in.ingresses.ListNamespace(key.Cluster, key.Namespace),
			Services:    in.services.ListNamespace(key.Cluster, key.Namespace),
			Assignments: in.assignments.ListNamespace(key.Cluster, key.Namespace),
			Slices:      in.slices.ListNamespace(key.Cluster, key.Namespace),
			Claims:      in.claims.ListNamespace(key.Cluster, key.Namespace),
		})
	}
	return out
}
