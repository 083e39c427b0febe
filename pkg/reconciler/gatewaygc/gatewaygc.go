// Package gatewaygc forgets gateways that are gone for good: it deletes the GatewayReports
// that they left in tenants' namespaces, and then the GatewayInstance.
//
// A gateway's silence already stops counting when its lease and the grace after it have
// run out; this is only so that what it wrote does not stand there for ever. Silence
// counts from the later of the lease's end and the server's start, since gateways live on
// while the server is away. One that returns after all registers and reports anew.
package gatewaygc

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/reconciler/handover"
	"github.com/13eedeaf/kcp/pkg/reconciler/informers"
	"github.com/13eedeaf/kcp/pkg/steady"
)

// Retention is how long after its lease ran out a gateway is remembered. It is far above
// handover.GatewayGrace, during which a gateway still holds up handovers.
const Retention = 10 * time.Minute

// Deps is what the controller works with.
type Deps struct {
	Clients   *clients.Clients
	Informers *informers.Set
	Leases    *handover.Leases
	Clock     clock.PassiveClock
}

// Controller reconciles gateways, by name.
type Controller struct {
	clock steady.Clock
	// since is when the server began to hear gateways.
	since steady.Instant
	// unknown has the age of reports of gateways that have not registered.
	unknown steady.Signs[logicalcluster.Key]
	loop    *reconciler.Controller[string]

	instance       func(name string, now time.Time) (*networkingv1alpha1.GatewayInstance, bool)
	reports        func() []*networkingv1alpha1.GatewayReport
	deleteReport   func(context.Context, *networkingv1alpha1.GatewayReport, metav1.DeleteOptions) error
	deleteInstance func(context.Context, *networkingv1alpha1.GatewayInstance, metav1.DeleteOptions) error
}

// New returns the controller; Run starts it. Call it before the informers start.
func New(deps Deps) *Controller {
	instances, reports := deps.Informers.GatewayInstances(), deps.Informers.GatewayReports()
	now := steady.New(deps.Clock)
	c := &Controller{
		clock:   now,
		since:   now.Ago(0),
		unknown: steady.Signs[logicalcluster.Key]{Clock: now},
		instance: func(name string, now time.Time) (*networkingv1alpha1.GatewayInstance, bool) {
			g, ok := instances.Get(logicalcluster.Root, "", name)
			if !ok {
				return nil, false
			}
			return deps.Leases.At(now, g), true
		},
		reports: reports.List,
		deleteReport: func(ctx context.Context, r *networkingv1alpha1.GatewayReport, o metav1.DeleteOptions) error {
			return deps.Clients.GatewayReports(logicalcluster.From(r), r.Namespace).Delete(ctx, r.Name, o)
		},
		deleteInstance: func(ctx context.Context, i *networkingv1alpha1.GatewayInstance, o metav1.DeleteOptions) error {
			return deps.Clients.GatewayInstances(logicalcluster.From(i)).Delete(ctx, i.Name, o)
		},
	}
	c.loop = reconciler.New[string]("gatewaygc", c, reconciler.WithSynced(instances.WaitForSync, reports.WaitForSync))
	instances.AddHandler(func(e informer.Event[*networkingv1alpha1.GatewayInstance]) {
		// A renewal is found when the earlier lease has run out.
		if e.Added || e.Deleted {
			c.loop.Enqueue(e.Key.Name)
		}
	})
	reports.AddHandler(func(e informer.Event[*networkingv1alpha1.GatewayReport]) {
		switch {
		case e.Deleted:
			c.unknown.Forget(e.Key)
		case e.Added:
			// Those of a known gateway are looked at with it.
			now := c.clock.Wall.Now()
			if _, known := c.instance(e.Key.Name, now); !known {
				c.unknown.Saw(e.Key, max(now.Sub(e.New.CreationTimestamp.Time), 0))
				c.loop.Enqueue(e.Key.Name)
			}
		}
	})
	return c
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.loop.Run(ctx) }

// Reconcile forgets one gateway if it is time.
func (c *Controller) Reconcile(ctx context.Context, name string) (reconciler.Result, error) {
	now := c.clock.Wall.Now()
	instance, known := c.instance(name, now)
	if known {
		if wait := c.forgetAt(handover.LeaseExpiry(instance), now).Sub(now); wait > 0 {
			return reconciler.Result{RequeueAfter: wait}, nil
		}
	}
	var next time.Duration
	for _, r := range c.reports() {
		if r.Name != name {
			continue
		}
		// A gateway that has just begun may report before it registers.
		if wait := c.forgetAt(c.written(r, now), now).Sub(now); !known && wait > 0 {
			if next == 0 || wait < next {
				next = wait
			}
			continue
		}
		klog.FromContext(ctx).V(2).Info("Deleting the report of a gateway that is gone", "report", klog.KObj(r), "cluster", logicalcluster.From(r))
		if err := c.deleteReport(ctx, r, asSeen(r.UID, r.ResourceVersion)); ignoreGone(err) != nil {
			return reconciler.Result{}, fmt.Errorf("cannot delete the report of gateway %q in namespace %q of cluster %q: %w", name, r.Namespace, logicalcluster.From(r), err)
		}
	}
	if !known {
		return reconciler.Result{RequeueAfter: next}, nil
	}
	klog.FromContext(ctx).Info("Forgetting a gateway that is gone", "lastSeen", instance.Spec.RenewTime)
	if err := c.deleteInstance(ctx, instance, asSeen(instance.UID, instance.ResourceVersion)); ignoreGone(err) != nil {
		return reconciler.Result{}, fmt.Errorf("cannot delete gateway instance %q: %w", name, err)
	}
	return reconciler.Result{}, nil
}

// written is when the report of a gateway that is not known was.
func (c *Controller) written(r *networkingv1alpha1.GatewayReport, now time.Time) time.Time {
	if at, ok := c.unknown.Last(logicalcluster.KeyOf(r), now); ok {
		return at
	}
	return r.CreationTimestamp.Time
}

// forgetAt is when what was last heard at that instant is forgotten.
func (c *Controller) forgetAt(last, now time.Time) time.Time {
	if since := c.clock.At(c.since, now); last.Before(since) {
		last = since
	}
	return last.Add(Retention)
}

// asSeen deletes an object only in the state in which it was seen: a gateway that has just
// spoken again keeps what it wrote.
func asSeen(uid types.UID, resourceVersion string) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &resourceVersion}}
}

// ignoreGone makes nothing of an object that was deleted by somebody else.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
