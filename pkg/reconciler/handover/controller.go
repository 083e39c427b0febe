package handover

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/reconciler/informers"
	"github.com/13eedeaf/kcp/pkg/reconciler/placement"
)

// debounce is how long a namespace waits for further events before it is planned, so
// that a burst of reports costs one plan.
const debounce = 50 * time.Millisecond

// Deps is what the controller works with.
type Deps struct {
	Clients   *clients.Clients
	Informers *informers.Set
	Fleet     *placement.Fleet
	Leases    *Leases
	Clock     clock.PassiveClock
}

// Controller plans and carries out handovers, one namespace at a time.
type Controller struct {
	clients *clients.Clients
	fleet   *placement.Fleet
	clock   clock.PassiveClock
	leases  *Leases
	// deadlines are of drains.
	deadlines *deadlines
	loop      *reconciler.Controller[logicalcluster.Key]

	assignments    *informer.Informer[*schedulingv1alpha1.Assignment]
	placements     *informer.Informer[*schedulingv1alpha1.Placement]
	reports        *informer.Informer[*workloadv1alpha1.SyncReport]
	gatewayReports *informer.Informer[*networkingv1alpha1.GatewayReport]
	namespaces     *informer.Informer[*corev1.Namespace]
	objects        map[schema.GroupVersionResource]*objects

	// unsettled has the namespaces that a change of any target, Location or gateway may
	// help. It is derived: each plan says whether its namespace belongs here.
	mu        sync.Mutex
	unsettled map[logicalcluster.Key]bool
}

// New returns the controller; Run starts it. Call it before the informers start.
func New(deps Deps) *Controller {
	c := &Controller{
		clients:        deps.Clients,
		fleet:          deps.Fleet,
		clock:          deps.Clock,
		leases:         deps.Leases,
		deadlines:      newDeadlines(deps.Clock),
		assignments:    deps.Informers.Assignments(),
		placements:     deps.Informers.Placements(),
		reports:        deps.Informers.SyncReports(),
		gatewayReports: deps.Informers.GatewayReports(),
		namespaces:     deps.Informers.Namespaces(),
		objects:        map[schema.GroupVersionResource]*objects{},
		unsettled:      map[logicalcluster.Key]bool{},
	}
	for _, gvr := range slices.Concat(placing, mirrored) {
		c.objects[gvr] = deps.Informers.Unstructured(gvr)
	}
	synced := []func(context.Context) bool{
		deps.Informers.Workspaces().WaitForSync, deps.Informers.SyncTargets().WaitForSync, deps.Informers.Locations().WaitForSync,
		c.assignments.WaitForSync, c.placements.WaitForSync, c.reports.WaitForSync,
		deps.Informers.GatewayInstances().WaitForSync, c.gatewayReports.WaitForSync, c.namespaces.WaitForSync,
	}
	for _, i := range c.objects {
		synced = append(synced, i.WaitForSync)
	}
	c.loop = reconciler.New[logicalcluster.Key]("handover", c,
		reconciler.WithWorkers(4), reconciler.WithWallTimers(deps.Clock), reconciler.WithSynced(synced...))
	c.watch()
	return c
}

// Run works until ctx ends. Nothing is decided before every informer holds the server's
// whole state.
func (c *Controller) Run(ctx context.Context) { c.loop.Run(ctx) }

// enqueue asks for the plan of a namespace.
func (c *Controller) enqueue(cluster logicalcluster.Name, namespace string) {
	c.loop.EnqueueAfter(placement.NamespaceKey(cluster, namespace), debounce)
}

func (c *Controller) enqueueAll(keys []logicalcluster.Key) {
	for _, key := range keys {
		c.loop.EnqueueAfter(key, debounce)
	}
}

// enqueueUnsettled asks for the plans of the namespaces that wait for something, of those
// for which wanted returns true.
func (c *Controller) enqueueUnsettled(wanted func(logicalcluster.Key) bool) {
	c.mu.Lock()
	keys := make([]logicalcluster.Key, 0, len(c.unsettled))
	for key := range c.unsettled {
		if wanted(key) {
			keys = append(keys, key)
		}
	}
	c.mu.Unlock()
	c.enqueueAll(keys)
}

func (c *Controller) settle(key logicalcluster.Key, settled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if settled {
		delete(c.unsettled, key)
		return
	}
	c.unsettled[key] = true
}

// watch registers the handlers: each maps an event to the namespaces that it concerns,
// and drops events that cannot change a plan.
func (c *Controller) watch() {
	for gvr, i := range c.objects {
		i.AddHandler(func(e informer.Event[*unstructured.Unstructured]) { c.objectChanged(gvr, e) })
	}
	c.assignments.AddHandler(func(e informer.Event[*schedulingv1alpha1.Assignment]) {
		if !e.Added && !e.Deleted && e.Old.Generation == e.New.Generation &&
			e.Old.DeletionTimestamp.Equal(e.New.DeletionTimestamp) && reflect.DeepEqual(e.Old.Finalizers, e.New.Finalizers) {
			return
		}
		if e.Deleted {
			c.deadlines.forget(e.Old)
		}
		c.enqueue(e.Key.Cluster, e.Key.Namespace)
	})
	c.reports.AddHandler(func(e informer.Event[*workloadv1alpha1.SyncReport]) {
		c.enqueue(e.Key.Cluster, e.Key.Namespace)
	})
	c.gatewayReports.AddHandler(func(e informer.Event[*networkingv1alpha1.GatewayReport]) {
		if !e.Added && !e.Deleted && reflect.DeepEqual(e.Old.Spec.Targets, e.New.Spec.Targets) {
			return
		}
		c.enqueue(e.Key.Cluster, e.Key.Namespace)
	})
	c.leases.OnChange(func() { c.enqueueUnsettled(func(logicalcluster.Key) bool { return true }) })
	c.placements.AddHandler(func(e informer.Event[*schedulingv1alpha1.Placement]) {
		if !e.Added && !e.Deleted && equality.Semantic.DeepEqual(e.Old.Spec, e.New.Spec) && e.Old.DeletionTimestamp.Equal(e.New.DeletionTimestamp) {
			return
		}
		for _, namespace := range c.namespaces.ListCluster(e.Key.Cluster) {
			c.enqueue(e.Key.Cluster, namespace.Name)
		}
	})
	c.namespaces.AddHandler(func(e informer.Event[*corev1.Namespace]) {
		if !e.Added && !e.Deleted && reflect.DeepEqual(e.Old.Labels, e.New.Labels) && e.Old.DeletionTimestamp.Equal(e.New.DeletionTimestamp) {
			return
		}
		c.enqueue(e.Key.Cluster, e.Key.Name)
	})
	c.fleet.OnChange(c.fleetChanged)
}

// fleetChanged enqueues the namespaces that a changed target has and, where workspaces see
// the change, those that wait for a place; those that have one only if what changed is a
// Location: a target that they do not have is no reason to move.
func (c *Controller) fleetChanged(change placement.Change) {
	if change.Target != "" {
		c.enqueueAll(c.fleet.AssignedTo(change.Target))
	}
	sees := make(map[logicalcluster.Name]bool, len(change.Clusters))
	for _, cluster := range change.Clusters {
		sees[cluster] = true
		if change.Target != "" {
			continue
		}
		for _, a := range c.assignments.ListCluster(cluster) {
			c.enqueue(cluster, a.Namespace)
		}
	}
	c.enqueueUnsettled(func(namespace logicalcluster.Key) bool { return sees[namespace.Cluster] })
}

// objectChanged enqueues the namespace of an object that appeared, went, has a new
// generation, or has begun or ended to hold the namespace; of mirrored ones only where the
// target has no business there.
func (c *Controller) objectChanged(gvr schema.GroupVersionResource, e informer.Event[*unstructured.Unstructured]) {
	if target := mirroredFrom(e.Object()); target != "" {
		if _, assigned := c.assignments.Get(e.Key.Cluster, e.Key.Namespace, target); !assigned && !e.Deleted {
			c.enqueue(e.Key.Cluster, e.Key.Namespace)
		}
		return
	}
	if !slices.Contains(placing, gvr) || !e.Added && !e.Deleted && e.Old.GetUID() == e.New.GetUID() &&
		e.Old.GetGeneration() == e.New.GetGeneration() && (e.Old.GetDeletionTimestamp() == nil) == (e.New.GetDeletionTimestamp() == nil) &&
		holdOf(gvr, e.Old) == holdOf(gvr, e.New) {
		return
	}
	c.enqueue(e.Key.Cluster, e.Key.Namespace)
}

// StageOf says how far the move of a namespace off a target is, by what stands in the
// informers now.
func (c *Controller) StageOf(ctx context.Context, namespace logicalcluster.Key, target string) Stage {
	o, ok := c.observe(ctx, namespace)
	if !ok {
		return Stage{Stage: StagePending}
	}
	if stage, ok := Plan(o.state, o.decision, o.gates).Stages[target]; ok {
		return stage
	}
	return Stage{Stage: StagePending}
}
