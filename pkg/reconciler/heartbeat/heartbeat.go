// Package heartbeat writes the server's part of SyncTargets: whether the syncer is
// heard, whether new namespaces may come, how many there are, and how far a drain is.
// It also holds a SyncTarget that is being deleted until its namespaces have moved.
//
// A syncer that falls silent turns Ready to False after Silence. That alone moves
// nothing; how long silence is tolerated is each Placement's choice.
package heartbeat

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/reconciler/handover"
	"github.com/13eedeaf/kcp/pkg/reconciler/informers"
	"github.com/13eedeaf/kcp/pkg/reconciler/placement"
	"github.com/13eedeaf/kcp/pkg/version"
)

// Silence is how long after its last heartbeat a syncer still counts as heard.
const Silence = 30 * time.Second

const (
	// debounce gathers the changes of a burst of Assignments.
	debounce = 100 * time.Millisecond
	// progress is how often the stages of a drain are looked at while nothing happens.
	progress = 5 * time.Second
)

// Deps is what the controller works with.
type Deps struct {
	Clients   *clients.Clients
	Informers *informers.Set
	Fleet     *placement.Fleet
	// StageOf says how far the move of a namespace off a target is
	// (handover.Controller has it).
	StageOf func(ctx context.Context, namespace logicalcluster.Key, target string) handover.Stage
	// Path returns the path of a workspace.
	Path  func(logicalcluster.Name) (logicalcluster.Path, bool)
	Clock clock.PassiveClock
}

// Controller reconciles SyncTargets.
type Controller struct {
	deps    Deps
	targets *informer.Informer[*workloadv1alpha1.SyncTarget]
	loop    *reconciler.Controller[logicalcluster.Key]
	// syncTarget finds the object behind a target key.
	syncTarget func(key string) (logicalcluster.Key, bool)
}

// New returns the controller; Run starts it. Call it before the informers start.
func New(deps Deps) *Controller {
	c := &Controller{deps: deps, targets: deps.Informers.SyncTargets(), syncTarget: deps.Fleet.SyncTarget}
	assignments := deps.Informers.Assignments()
	c.loop = reconciler.New[logicalcluster.Key]("heartbeat", c, reconciler.WithWallTimers(deps.Clock), reconciler.WithSynced(
		deps.Informers.Workspaces().WaitForSync, c.targets.WaitForSync, assignments.WaitForSync,
	))
	c.targets.AddHandler(func(e informer.Event[*workloadv1alpha1.SyncTarget]) {
		if !e.Deleted {
			c.loop.Enqueue(e.Key)
		}
	})
	assignments.AddHandler(func(e informer.Event[*schedulingv1alpha1.Assignment]) {
		if target, ok := c.syncTarget(e.Key.Name); ok {
			c.loop.EnqueueAfter(target, debounce)
		}
	})
	return c
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.loop.Run(ctx) }

// Reconcile brings one SyncTarget's status and finalizer up to date.
func (c *Controller) Reconcile(ctx context.Context, key logicalcluster.Key) (reconciler.Result, error) {
	st, ok := c.targets.Get(key.Cluster, "", key.Name)
	if !ok {
		return reconciler.Result{}, nil
	}
	target := workloadv1alpha1.TargetKey(key.Cluster, st.UID)
	namespaces := c.deps.Fleet.AssignedTo(target)
	if done, err := c.finalizer(ctx, key, st, len(namespaces)); done || err != nil {
		return reconciler.Result{}, err
	}

	now := c.deps.Clock.Now()
	updated := st.DeepCopy()
	updated.Status.Key = target
	updated.Status.Namespaces = int32(len(namespaces))
	setVersionSkew(updated, now)
	heard, _ := c.deps.Fleet.LastHeard(target, now)
	next := setReady(updated, heard, c.deps.Fleet.ListeningSince(now), now)
	next = earlier(next, setSchedulable(updated, now))
	next = earlier(next, c.setDrain(ctx, updated, target, namespaces, now))
	if !equality.Semantic.DeepEqual(st.Status, updated.Status) {
		if _, err := c.deps.Clients.SyncTargets(key.Cluster).UpdateStatus(ctx, updated, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return reconciler.Result{}, fmt.Errorf("cannot update the status of SyncTarget %q: %w", key.Name, err)
		}
	}
	return reconciler.Result{RequeueAfter: next}, nil
}

// earlier returns the shorter of two waits, of which zero stands for forever.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// finalizer adds it to a SyncTarget that may be given namespaces, and takes it from one
// that is being deleted and has none left; done when it did either.
func (c *Controller) finalizer(ctx context.Context, key logicalcluster.Key, st *workloadv1alpha1.SyncTarget, namespaces int) (done bool, err error) {
	has := slices.Contains(st.Finalizers, workloadv1alpha1.SyncTargetFinalizer)
	deleting := st.DeletionTimestamp != nil
	updated := st.DeepCopy()
	switch {
	case !has && !deleting:
		updated.Finalizers = append(updated.Finalizers, workloadv1alpha1.SyncTargetFinalizer)
	case has && deleting && namespaces == 0:
		updated.Finalizers = slices.DeleteFunc(updated.Finalizers, func(f string) bool { return f == workloadv1alpha1.SyncTargetFinalizer })
	default:
		return false, nil
	}
	if _, err := c.deps.Clients.SyncTargets(key.Cluster).Update(ctx, updated, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return true, fmt.Errorf("cannot update the finalizers of SyncTarget %q: %w", key.Name, err)
	}
	return true, nil
}

// setVersionSkew sets condition VersionSkew once the syncer has told what it speaks.
func setVersionSkew(st *workloadv1alpha1.SyncTarget, now time.Time) {
	if st.Status.SyncProtocol == nil {
		return
	}
	c := metav1.Condition{
		Type: workloadv1alpha1.SyncTargetVersionSkew, Status: metav1.ConditionFalse, Reason: "Supported", Message: "Syncer and server fit.",
		ObservedGeneration: st.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	syncer := version.Peer{Build: st.Status.SyncerVersion, Protocol: int(*st.Status.SyncProtocol)}
	if message := version.RefuseSyncer(syncer, st.Name); message != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "SyncerRefused", message
	}
	meta.SetStatusCondition(&st.Status.Conditions, c)
}

// setReady sets condition Ready and returns when it may change by itself. since is when the
// server last heard the syncer, zero when that was before its start.
func setReady(st *workloadv1alpha1.SyncTarget, since, listeningSince, now time.Time) time.Duration {
	c := metav1.Condition{Type: workloadv1alpha1.SyncTargetReady, ObservedGeneration: st.Generation, LastTransitionTime: metav1.NewTime(now)}
	heard := st.Status.LastHeartbeatTime
	var wait time.Duration
	switch {
	case heard == nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "NeverConnected", "No syncer has connected yet."
	default:
		// Silence while the server itself was away is not the syncer's; but what counted
		// as silent before stays so until it is heard again.
		if since.IsZero() && meta.IsStatusConditionTrue(st.Status.Conditions, workloadv1alpha1.SyncTargetReady) {
			since = listeningSince
		}
		wait = since.Add(Silence).Sub(now)
		if wait > 0 {
			c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Heartbeating", "The syncer is heard."
			break
		}
		wait = 0
		c.Status, c.Reason = metav1.ConditionFalse, "Silent"
		c.Message = "The syncer has not been heard since " + heard.UTC().Format(time.RFC3339) + "."
	}
	if skew := meta.FindStatusCondition(st.Status.Conditions, workloadv1alpha1.SyncTargetVersionSkew); c.Status == metav1.ConditionFalse && skew != nil && skew.Status == metav1.ConditionTrue {
		c.Reason, c.Message = skew.Reason, skew.Message
	}
	meta.SetStatusCondition(&st.Status.Conditions, c)
	return wait
}

// setSchedulable sets condition Schedulable and returns when it may change by itself.
func setSchedulable(st *workloadv1alpha1.SyncTarget, now time.Time) time.Duration {
	c := metav1.Condition{Type: workloadv1alpha1.SyncTargetSchedulable, Status: metav1.ConditionFalse, ObservedGeneration: st.Generation, LastTransitionTime: metav1.NewTime(now)}
	var wait time.Duration
	if st.Spec.EvictAfter != nil {
		wait = max(st.Spec.EvictAfter.Sub(now), 0)
	}
	switch {
	case st.DeletionTimestamp != nil:
		c.Reason, c.Message = "Deleting", "The SyncTarget is being deleted."
	case st.Spec.EvictAfter != nil && wait == 0:
		c.Reason, c.Message = "Draining", "The SyncTarget is drained."
	case st.Spec.Unschedulable:
		c.Reason, c.Message = "Cordoned", "The SyncTarget is cordoned: nothing new comes, nothing leaves."
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Schedulable", "New namespaces may come."
	}
	meta.SetStatusCondition(&st.Status.Conditions, c)
	return wait
}

// setDrain sets the progress of a drain and condition Drained, or removes both, and
// returns when to look again.
func (c *Controller) setDrain(ctx context.Context, st *workloadv1alpha1.SyncTarget, target string, namespaces []logicalcluster.Key, now time.Time) time.Duration {
	if st.Spec.EvictAfter == nil && st.DeletionTimestamp == nil {
		st.Status.Drain = nil
		meta.RemoveStatusCondition(&st.Status.Conditions, workloadv1alpha1.SyncTargetDrained)
		return 0
	}
	drain := &workloadv1alpha1.DrainStatus{ObservedEvictAfter: st.Spec.EvictAfter, Remaining: int32(len(namespaces))}
	st.Status.Drain = drain
	if st.DeletionTimestamp == nil && st.Spec.EvictAfter.After(now) {
		drain.State = workloadv1alpha1.DrainWaiting
		meta.RemoveStatusCondition(&st.Status.Conditions, workloadv1alpha1.SyncTargetDrained)
		return st.Spec.EvictAfter.Sub(now)
	}
	blocked := 0
	for _, namespace := range namespaces {
		stage := c.deps.StageOf(ctx, namespace, target)
		if stage.Stage == handover.StageBlocked {
			blocked++
		}
		path, ok := c.deps.Path(namespace.Cluster)
		if !ok {
			path = namespace.Cluster.Path()
		}
		drain.Namespaces = append(drain.Namespaces, workloadv1alpha1.DrainNamespace{
			Workspace: string(path), Namespace: namespace.Name, Stage: stage.Stage, Message: placement.NameTargets(stage.Message, logicalcluster.From(st), c.syncTarget),
		})
	}
	slices.SortFunc(drain.Namespaces, compareProgress)
	if len(drain.Namespaces) > workloadv1alpha1.MaxDrainNamespaces {
		drain.Namespaces = drain.Namespaces[:workloadv1alpha1.MaxDrainNamespaces]
	}
	condition := metav1.Condition{Type: workloadv1alpha1.SyncTargetDrained, Status: metav1.ConditionFalse, ObservedGeneration: st.Generation, LastTransitionTime: metav1.NewTime(now)}
	switch {
	case len(namespaces) == 0:
		drain.State = workloadv1alpha1.DrainEmpty
		condition.Status, condition.Message = metav1.ConditionTrue, "Nothing is left here: safe to work on."
	case blocked == len(namespaces):
		drain.State = workloadv1alpha1.DrainBlocked
		condition.Message = fmt.Sprintf("Namespaces that cannot move: %d. status.drain.namespaces says why.", blocked)
	default:
		drain.State = workloadv1alpha1.DrainDraining
		condition.Message = fmt.Sprintf("Namespaces still here: %d.", len(namespaces))
	}
	condition.Reason = string(drain.State)
	meta.SetStatusCondition(&st.Status.Conditions, condition)
	if len(namespaces) == 0 {
		return 0
	}
	return progress
}

func compareProgress(a, b workloadv1alpha1.DrainNamespace) int {
	rank := func(n workloadv1alpha1.DrainNamespace) int {
		if n.Stage == handover.StageBlocked {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Workspace, b.Workspace), strings.Compare(a.Namespace, b.Namespace))
}
