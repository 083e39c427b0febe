// Package location counts the targets of Locations for their status.
package location

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/reconciler/informers"
	"github.com/13eedeaf/kcp/pkg/reconciler/placement"
	"github.com/13eedeaf/kcp/pkg/scheduling"
)

// debounce gathers changes of many targets; recheck is how often a Location whose
// targets cannot be found is looked at.
const (
	debounce = 100 * time.Millisecond
	recheck  = 30 * time.Second
)

// Deps is what the controller works with.
type Deps struct {
	Clients   *clients.Clients
	Informers *informers.Set
	Fleet     *placement.Fleet
	Clock     clock.PassiveClock
}

// Controller reconciles Locations.
type Controller struct {
	deps      Deps
	locations *informer.Informer[*schedulingv1alpha1.Location]
	loop      *reconciler.Controller[logicalcluster.Key]
}

// New returns the controller; Run starts it. Call it before the informers start.
func New(deps Deps) *Controller {
	c := &Controller{deps: deps, locations: deps.Informers.Locations()}
	c.loop = reconciler.New[logicalcluster.Key]("location", c, reconciler.WithWorkers(1), reconciler.WithWallTimers(deps.Clock), reconciler.WithSynced(
		deps.Informers.Workspaces().WaitForSync, deps.Informers.SyncTargets().WaitForSync, c.locations.WaitForSync,
	))
	c.locations.AddHandler(func(e informer.Event[*schedulingv1alpha1.Location]) {
		if !e.Deleted {
			c.loop.EnqueueAfter(e.Key, debounce)
		}
	})
	deps.Fleet.OnChange(func(change placement.Change) {
		for _, key := range change.Locations {
			c.loop.EnqueueAfter(key, debounce)
		}
	})
	return c
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.loop.Run(ctx) }

// Reconcile counts one Location's targets.
func (c *Controller) Reconcile(ctx context.Context, key logicalcluster.Key) (reconciler.Result, error) {
	l, ok := c.locations.Get(key.Cluster, "", key.Name)
	if !ok {
		return reconciler.Result{}, nil
	}
	seen := c.deps.Fleet.Location(ctx, l)
	var available int32
	for _, t := range seen.Targets() {
		if scheduling.VerdictOn(t, c.deps.Clock.Now()) == scheduling.Eligible {
			available++
		}
	}
	updated := l.DeepCopy()
	updated.Status.Instances = ptr.To(int32(len(seen.Targets())))
	updated.Status.AvailableInstances = &available
	if !equality.Semantic.DeepEqual(l.Status, updated.Status) {
		if _, err := c.deps.Clients.Locations(key.Cluster).UpdateStatus(ctx, updated, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return reconciler.Result{}, fmt.Errorf("cannot update the status of Location %q: %w", key.Name, err)
		}
	}
	return reconciler.Result{RequeueAfter: c.again(seen)}, nil
}

// again is when a count may change without an event: the next drain, or what hindered
// the Location may have gone away.
func (c *Controller) again(l *scheduling.Location) time.Duration {
	now := c.deps.Clock.Now()
	var wait time.Duration
	if l.Problem != "" {
		wait = recheck
	}
	for _, t := range l.Targets() {
		if d := t.EvictAfter.Sub(now); d > 0 && (wait == 0 || d < wait) {
			wait = d
		}
	}
	return wait
}
