// Package statusaggregator writes what targets report of an object into the object's own
// status, and tells the tenant by events where an object could not be synced.
//
// Which reports count: those of targets that hold the namespace by an Assignment which
// is not being taken away. What a target that has gone said last is no longer true.
package statusaggregator

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/reconciler/events"
	"github.com/13eedeaf/kcp/pkg/reconciler/informers"
	"github.com/13eedeaf/kcp/pkg/status"
)

const (
	// debounce gathers the reports of several targets of one object.
	debounce = 20 * time.Millisecond
	// component is the source that events name.
	component = "kcp-syncer"
)

// Key identifies an object of a tenant.
type Key struct {
	GVR schema.GroupVersionResource
	logicalcluster.Key
}

// String is the form in logs.
func (k Key) String() string { return k.GVR.GroupResource().String() + "|" + k.Key.String() }

// Deps is what the controller works with.
type Deps struct {
	Clients   *clients.Clients
	Informers *informers.Set
	Clock     clock.PassiveClock
}

// Controller reconciles the status of whatever targets report on.
type Controller struct {
	deps        Deps
	reports     *informer.Informer[*workloadv1alpha1.SyncReport]
	assignments *informer.Informer[*schedulingv1alpha1.Assignment]
	loop        *reconciler.Controller[Key]
	events      *events.Recorder

	// mu guards followed: the resources whose informer has a handler here; and byObject:
	// the names of an object's reports.
	mu       sync.Mutex
	followed map[schema.GroupVersionResource]bool
	byObject map[Key]map[string]bool
}

// New returns the controller; Run starts it. Call it before the informers start.
func New(deps Deps) *Controller {
	c := &Controller{
		deps:        deps,
		reports:     deps.Informers.SyncReports(),
		assignments: deps.Informers.Assignments(),
		events:      &events.Recorder{Clients: deps.Clients, Clock: deps.Clock, Component: component},
		followed:    map[schema.GroupVersionResource]bool{},
		byObject:    map[Key]map[string]bool{},
	}
	c.loop = reconciler.New[Key]("status", c,
		reconciler.WithWorkers(4), reconciler.WithSynced(c.reports.WaitForSync, c.assignments.WaitForSync))
	c.reports.AddHandler(c.reportChanged)
	c.assignments.AddHandler(func(e informer.Event[*schedulingv1alpha1.Assignment]) {
		if !e.Added && !e.Deleted && e.Old.DeletionTimestamp.Equal(e.New.DeletionTimestamp) {
			return
		}
		for _, r := range c.reports.ListNamespace(e.Key.Cluster, e.Key.Namespace) {
			if r.Spec.Target == e.Key.Name {
				c.loop.EnqueueAfter(keyOf(r), debounce)
			}
		}
	})
	return c
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.loop.Run(ctx) }

func keyOf(r *workloadv1alpha1.SyncReport) Key {
	return Key{
		GVR: schema.GroupVersionResource{Group: r.Spec.Group, Version: r.Spec.Version, Resource: r.Spec.Resource},
		Key: logicalcluster.Key{Cluster: logicalcluster.From(r), Namespace: r.Namespace, Name: r.Spec.Name},
	}
}

func (c *Controller) reportChanged(e informer.Event[*workloadv1alpha1.SyncReport]) {
	key := keyOf(e.Object())
	c.mu.Lock()
	if e.Old != nil {
		// It may have spoken of another object before.
		before := keyOf(e.Old)
		delete(c.byObject[before], e.Key.Name)
		if len(c.byObject[before]) == 0 {
			delete(c.byObject, before)
		}
		if before != key {
			c.loop.EnqueueAfter(before, debounce)
		}
	}
	if !e.Deleted {
		if c.byObject[key] == nil {
			c.byObject[key] = map[string]bool{}
		}
		c.byObject[key][e.Key.Name] = true
	}
	several := len(c.byObject[key]) > 1
	c.mu.Unlock()
	if several {
		c.loop.EnqueueAfter(key, debounce)
		return
	}
	// There is nothing to gather, and somebody may be waiting for this status.
	c.loop.Enqueue(key)
}

// objects returns the informer of a resource. Its objects are looked at again when they
// have been made anew or their status was written by somebody else.
func (c *Controller) objects(gvr schema.GroupVersionResource) *informer.Informer[*unstructured.Unstructured] {
	i := c.deps.Informers.Unstructured(gvr)
	c.mu.Lock()
	known := c.followed[gvr]
	c.followed[gvr] = true
	c.mu.Unlock()
	if !known {
		i.AddHandler(func(e informer.Event[*unstructured.Unstructured]) {
			key := Key{GVR: gvr, Key: e.Key}
			c.mu.Lock()
			reported := len(c.byObject[key]) > 0
			c.mu.Unlock()
			if reported && !e.Deleted {
				c.loop.EnqueueAfter(key, debounce)
			}
		})
	}
	return i
}

// Reconcile writes one object's status, and events about what hinders it.
func (c *Controller) Reconcile(ctx context.Context, key Key) (reconciler.Result, error) {
	objects := c.objects(key.GVR)
	if !objects.HasSynced() {
		// The first report of a resource starts its informer.
		return reconciler.Result{RequeueAfter: time.Second}, nil
	}
	obj, ok := objects.Get(key.Cluster, key.Namespace, key.Name)
	if !ok {
		return reconciler.Result{}, nil
	}
	reports := c.counting(key)
	if err := c.writeStatus(ctx, key, obj, reports); err != nil {
		return reconciler.Result{}, err
	}
	for _, r := range reports {
		if !r.Report.Synced && r.Spec.UID == string(obj.GetUID()) {
			if err := c.event(ctx, obj, r); err != nil {
				return reconciler.Result{}, err
			}
		}
	}
	return reconciler.Result{}, nil
}

// counting returns the reports on an object by targets that hold its namespace.
func (c *Controller) counting(key Key) []*workloadv1alpha1.SyncReport {
	c.mu.Lock()
	names := make([]string, 0, len(c.byObject[key]))
	for name := range c.byObject[key] {
		names = append(names, name)
	}
	c.mu.Unlock()
	var out []*workloadv1alpha1.SyncReport
	for _, name := range names {
		r, ok := c.reports.Get(key.Cluster, key.Namespace, name)
		if !ok {
			continue
		}
		a, ok := c.assignments.Get(key.Cluster, key.Namespace, r.Spec.Target)
		if ok && a.DeletionTimestamp == nil {
			out = append(out, r)
		}
	}
	return out
}

func (c *Controller) writeStatus(ctx context.Context, key Key, obj *unstructured.Unstructured, reports []*workloadv1alpha1.SyncReport) error {
	aggregate, changed := status.Aggregate(obj, reports)
	if !changed {
		return nil
	}
	updated := obj.DeepCopy()
	updated.Object["status"] = aggregate
	_, err := c.deps.Clients.Dynamic(key.Cluster).Resource(key.GVR).Namespace(key.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		// The object has gone, or its kind has no status of its own.
		return nil
	case apierrors.IsInvalid(err):
		// The kind refuses such a step, e.g. a Job that would start again. The next
		// report may do.
		klog.FromContext(ctx).Info("Status was refused", "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("cannot update the status: %w", err)
	}
	return nil
}

// event tells the tenant that an object could not be synced. One failure of one target
// is one event. It is told when something is reported of the object, not by the clock: a
// failure that lasts is in the SyncReport.
func (c *Controller) event(ctx context.Context, obj *unstructured.Unstructured, r *workloadv1alpha1.SyncReport) error {
	reason := r.Report.Reason
	if reason == "" {
		reason = "SyncFailed"
	}
	message := fmt.Sprintf("Target %s: %s", r.Spec.Target, r.Report.Message)
	return c.events.Warn(ctx, events.Warning{Object: obj, Identity: reason + "\x00" + message, Reason: reason, Message: message})
}
