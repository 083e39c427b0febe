package handover

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
)

// catchUp is how long to wait for the informer where it lags behind the server.
const catchUp = 200 * time.Millisecond

// Reconcile plans one namespace and does what the plan asks.
func (c *Controller) Reconcile(ctx context.Context, key logicalcluster.Key) (reconciler.Result, error) {
	if err := c.cleanUp(ctx, key); err != nil {
		return reconciler.Result{}, err
	}
	o, ok := c.observe(ctx, key)
	if !ok {
		c.settle(key, true)
		return reconciler.Result{}, nil
	}
	actions := Plan(o.state, o.decision, o.gates)
	c.settle(key, actions.Settled)
	if len(o.state.Assignments) == 0 && o.decision.Blocked != "" {
		klog.FromContext(ctx).V(3).Info("Namespace has no place", "reason", o.decision.Blocked)
	}
	if again, err := c.act(ctx, key, o.state, actions); err != nil || again > 0 {
		return reconciler.Result{RequeueAfter: again}, err
	}
	if actions.Next.IsZero() {
		return reconciler.Result{}, nil
	}
	// A little later than the instant, so that it has passed for certain.
	return reconciler.Result{RequeueAfter: max(actions.Next.Sub(c.clock.Now()), 0) + 10*time.Millisecond}, nil
}

func (c *Controller) act(ctx context.Context, key logicalcluster.Key, s *State, actions Actions) (again time.Duration, err error) {
	if len(actions.Create) > 0 {
		fresh, err := c.fresh(ctx, key, s.Assignments)
		if err != nil {
			return 0, err
		}
		if !fresh {
			return catchUp, nil
		}
	}
	for _, a := range actions.Create {
		if err := c.create(ctx, key, a); err != nil {
			return 0, err
		}
	}
	for _, u := range actions.Update {
		if err := c.update(ctx, key, u); err != nil {
			return 0, err
		}
	}
	for _, a := range actions.Delete {
		klog.FromContext(ctx).Info("Namespace leaves a target", "target", a.Name, "reason", actions.Stages[a.Name].Message)
		err := c.clients.Assignments(key.Cluster, key.Name).Delete(ctx, a.Name, metav1.DeleteOptions{
			// What the plan was made from must still hold, or it was made in vain.
			Preconditions: &metav1.Preconditions{UID: &a.UID, ResourceVersion: &a.ResourceVersion},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("cannot delete Assignment %q: %w", a.Name, err)
		}
	}
	for _, a := range actions.Release {
		if err := c.release(ctx, key, a); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// fresh asks the server whether the informer knows all Assignments of a namespace. A
// decision for a new one from an old view could place the namespace twice.
func (c *Controller) fresh(ctx context.Context, key logicalcluster.Key, known []*schedulingv1alpha1.Assignment) (bool, error) {
	list, err := c.clients.Assignments(key.Cluster, key.Name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("cannot list Assignments: %w", err)
	}
	if len(list.Items) != len(known) {
		return false, nil
	}
	for i := range list.Items {
		if !slices.ContainsFunc(known, func(a *schedulingv1alpha1.Assignment) bool {
			return a.UID == list.Items[i].UID && a.ResourceVersion == list.Items[i].ResourceVersion
		}) {
			return false, nil
		}
	}
	return true, nil
}

func (c *Controller) create(ctx context.Context, key logicalcluster.Key, a *schedulingv1alpha1.Assignment) error {
	a.Namespace = key.Name
	klog.FromContext(ctx).Info("Namespace is assigned to a target", "target", a.Name, "location", a.Spec.Location, "reason", a.Spec.Reason)
	_, err := c.clients.Assignments(key.Cluster, key.Name).Create(ctx, a, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		// The namespace is going; nothing is to be placed.
		return nil
	case err != nil:
		return fmt.Errorf("cannot create Assignment %q: %w", a.Name, err)
	}
	c.fleet.Assume(a.Name, key)
	return nil
}

func (c *Controller) update(ctx context.Context, key logicalcluster.Key, u Update) error {
	client := c.clients.Assignments(key.Cluster, key.Name)
	a := u.Assignment
	if u.SpecChanged {
		status := a.Status
		klog.FromContext(ctx).Info("Assignment changes", "target", a.Name, "state", a.Spec.State, "reason", a.Spec.Reason)
		updated, err := client.Update(ctx, a, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("cannot update Assignment %q: %w", a.Name, ignoreGone(err))
		}
		a = updated.DeepCopy()
		a.Status = status
	}
	if !u.StatusChanged {
		return nil
	}
	if _, err := client.UpdateStatus(ctx, a, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot update the status of Assignment %q: %w", a.Name, err)
	}
	return nil
}

// ignoreGone turns "not found", which a later event will explain, into a conflict, which
// is tried again without being logged as an error.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return apierrors.NewConflict(schema.GroupResource{Resource: "assignments"}, "", err)
	}
	return err
}

// release takes the syncer's finalizer away where no syncer will.
func (c *Controller) release(ctx context.Context, key logicalcluster.Key, a *schedulingv1alpha1.Assignment) error {
	released := a.DeepCopy()
	released.Finalizers = slices.DeleteFunc(released.Finalizers, func(f string) bool { return f == workloadv1alpha1.SyncerFinalizer })
	if len(released.Finalizers) == len(a.Finalizers) {
		return nil
	}
	klog.FromContext(ctx).Info("Assignment is released without its syncer", "target", a.Name)
	if _, err := c.clients.Assignments(key.Cluster, key.Name).Update(ctx, released, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot release Assignment %q: %w", a.Name, err)
	}
	return nil
}

// cleanUp removes what targets without an Assignment have left in a namespace: their
// reports, and what they mirrored up. Their syncers do so themselves as a rule; this is
// for those that cannot.
func (c *Controller) cleanUp(ctx context.Context, key logicalcluster.Key) error {
	left := map[string][]leftover{}
	for _, r := range c.reports.ListNamespace(key.Cluster, key.Name) {
		left[r.Spec.Target] = append(left[r.Spec.Target], leftover{syncReports, r})
	}
	for _, gvr := range mirrored {
		for _, obj := range c.objects[gvr].ListNamespace(key.Cluster, key.Name) {
			if target := mirroredFrom(obj); target != "" {
				left[target] = append(left[target], leftover{gvr, obj})
			}
		}
	}
	for target, objects := range left {
		if _, assigned := c.assignments.Get(key.Cluster, key.Name, target); assigned {
			continue
		}
		// The informer of Assignments may lag behind the others: ask the server.
		_, err := c.clients.Assignments(key.Cluster, key.Name).Get(ctx, target, metav1.GetOptions{})
		if err == nil {
			continue
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot get Assignment %q: %w", target, err)
		}
		for _, o := range objects {
			if err := c.remove(ctx, key, o); err != nil {
				return err
			}
		}
	}
	return nil
}

var syncReports = workloadv1alpha1.GroupVersion.WithResource("syncreports")

// leftover is an object that its target no longer answers for.
type leftover struct {
	gvr    schema.GroupVersionResource
	object metav1.Object
}

func (c *Controller) remove(ctx context.Context, key logicalcluster.Key, o leftover) error {
	klog.FromContext(ctx).V(2).Info("Removing what a target left behind", "resource", o.gvr.Resource, "name", o.object.GetName())
	uid := o.object.GetUID()
	err := c.clients.Dynamic(key.Cluster).Resource(o.gvr).Namespace(key.Name).Delete(ctx, o.object.GetName(), metav1.DeleteOptions{
		// There is no kubelet that would end a mirrored pod's grace.
		GracePeriodSeconds: ptr.To[int64](0),
		Preconditions:      &metav1.Preconditions{UID: &uid},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("cannot delete %s %q: %w", o.gvr.Resource, o.object.GetName(), err)
	}
	return nil
}
