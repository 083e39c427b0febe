package placement

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/reconciler/informers"
	"github.com/13eedeaf/kcp/pkg/scheduling"
)

// MaxCandidates bounds PlacementStatus.Candidates; the message counts all.
const MaxCandidates = 100

// debounce gathers changes of many targets and Assignments.
const debounce = 200 * time.Millisecond

// Deps is what the controller works with.
type Deps struct {
	Clients   *clients.Clients
	Informers *informers.Set
	Fleet     *Fleet
	Clock     clock.PassiveClock
}

// Controller writes the status of Placements.
type Controller struct {
	deps        Deps
	placements  *informer.Informer[*schedulingv1alpha1.Placement]
	assignments *informer.Informer[*schedulingv1alpha1.Assignment]
	loop        *reconciler.Controller[logicalcluster.Key]
}

// New returns the controller; Run starts it. Call it before the informers start.
func New(deps Deps) *Controller {
	c := &Controller{deps: deps, placements: deps.Informers.Placements(), assignments: deps.Informers.Assignments()}
	c.loop = reconciler.New[logicalcluster.Key]("placement", c, reconciler.WithWallTimers(deps.Clock), reconciler.WithSynced(
		deps.Informers.Workspaces().WaitForSync, deps.Informers.SyncTargets().WaitForSync, deps.Informers.Locations().WaitForSync,
		c.placements.WaitForSync, c.assignments.WaitForSync,
	))
	c.placements.AddHandler(func(e informer.Event[*schedulingv1alpha1.Placement]) {
		if !e.Deleted {
			c.loop.EnqueueAfter(e.Key, debounce)
		}
	})
	c.assignments.AddHandler(func(e informer.Event[*schedulingv1alpha1.Assignment]) {
		if !e.Added && !e.Deleted && e.Old.Spec.Placement == e.New.Spec.Placement {
			return
		}
		c.loop.EnqueueAfter(logicalcluster.Key{Cluster: e.Key.Cluster, Name: e.Object().Spec.Placement}, debounce)
		if !e.Added && !e.Deleted {
			c.loop.EnqueueAfter(logicalcluster.Key{Cluster: e.Key.Cluster, Name: e.Old.Spec.Placement}, debounce)
		}
	})
	deps.Fleet.OnChange(func(change Change) {
		for _, cluster := range change.Clusters {
			for _, p := range c.placements.ListCluster(cluster) {
				c.loop.EnqueueAfter(logicalcluster.KeyOf(p), debounce)
			}
		}
	})
	return c
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.loop.Run(ctx) }

// Reconcile writes one Placement's status.
func (c *Controller) Reconcile(ctx context.Context, key logicalcluster.Key) (reconciler.Result, error) {
	p, ok := c.placements.Get(key.Cluster, "", key.Name)
	if !ok {
		return reconciler.Result{}, nil
	}
	now := c.deps.Clock.Now()
	verdicts := scheduling.Judge(p, c.deps.Fleet.EffectiveLocations(ctx, key.Cluster), c.deps.Fleet.Namespaces, now)
	namespaces := map[string]bool{}
	for _, a := range c.assignments.ListCluster(key.Cluster) {
		if a.Spec.Placement == key.Name {
			namespaces[a.Namespace] = true
		}
	}
	updated := p.DeepCopy()
	updated.Status = statusOf(verdicts, int32(len(namespaces)))
	if changed(p.Status, updated.Status, verdicts) {
		if _, err := c.deps.Clients.Placements(key.Cluster).UpdateStatus(ctx, updated, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return reconciler.Result{}, fmt.Errorf("cannot update the status of Placement %q: %w", key.Name, err)
		}
	}
	if verdicts.Next.IsZero() {
		return reconciler.Result{}, nil
	}
	return reconciler.Result{RequeueAfter: verdicts.Next.Sub(now)}, nil
}

func statusOf(v scheduling.Verdicts, namespaces int32) schedulingv1alpha1.PlacementStatus {
	out := schedulingv1alpha1.PlacementStatus{Namespaces: namespaces}
	eligible := 0
	for i, c := range v.Candidates {
		if c.Eligible() {
			eligible++
		}
		if i < MaxCandidates {
			out.Candidates = append(out.Candidates, schedulingv1alpha1.PlacementCandidate{
				Location: c.Location, LocationPath: c.LocationPath, Target: c.Target.Key,
				Eligible: c.Eligible(), Reason: c.Reason(),
			})
		}
	}
	switch {
	case namespaces > 0:
		out.Phase = schedulingv1alpha1.PlacementBound
	case len(v.Locations) == 0:
		out.Phase = schedulingv1alpha1.PlacementPending
	default:
		out.Phase = schedulingv1alpha1.PlacementUnbound
	}
	parts := v.Problems
	switch {
	case len(v.Locations) == 0 && len(parts) == 0:
		parts = append(parts, "no Location fits")
	case len(v.Locations) > 0:
		parts = append([]string{fmt.Sprintf("%d of %d targets can take a new namespace", eligible, len(v.Candidates))}, parts...)
	}
	out.Message = strings.Join(parts, "; ")
	return out
}

// changed reports whether a status is worth writing. Scores change with every namespace
// that is placed anywhere; alone they are no reason to write to every workspace.
func changed(old, updated schedulingv1alpha1.PlacementStatus, v scheduling.Verdicts) bool {
	if len(old.Candidates) != len(updated.Candidates) {
		return true
	}
	old.Candidates = append([]schedulingv1alpha1.PlacementCandidate(nil), old.Candidates...)
	for i := range old.Candidates {
		if old.Candidates[i].Eligible && v.Candidates[i].Eligible() && v.Candidates[i].Target.EvictAfter.IsZero() && old.Namespaces == updated.Namespaces {
			old.Candidates[i].Reason = updated.Candidates[i].Reason
		}
	}
	return !equality.Semantic.DeepEqual(old, updated)
}
