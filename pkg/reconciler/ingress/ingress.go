// Package ingress shows the addresses of the live gateways in the status of every
// Ingress whose namespace runs somewhere and whose workspace holds a host of it.
package ingress

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/reconciler/handover"
	"github.com/13eedeaf/kcp/pkg/reconciler/informers"
)

var ingresses = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}

// debounce gathers changes of an Ingress, its namespace and the gateways.
const debounce = 100 * time.Millisecond

// fleet is the key under which the gateways themselves are looked at.
var fleet = logicalcluster.Key{}

// Deps is what the controller works with.
type Deps struct {
	Clients   *clients.Clients
	Informers *informers.Set
	Leases    *handover.Leases
	Clock     clock.PassiveClock
}

// Controller reconciles Ingresses.
type Controller struct {
	deps        Deps
	ingresses   *informer.Informer[*unstructured.Unstructured]
	gateways    *informer.Informer[*networkingv1alpha1.GatewayInstance]
	assignments *informer.Informer[*schedulingv1alpha1.Assignment]
	claims      *informer.Informer[*networkingv1alpha1.HostClaim]
	loop        *reconciler.Controller[logicalcluster.Key]

	// mu guards addresses: those of the live gateways as last looked at, nil before.
	mu        sync.Mutex
	addresses []string
}

// New returns the controller; Run starts it. Call it before the informers start.
func New(deps Deps) *Controller {
	c := &Controller{
		deps:        deps,
		ingresses:   deps.Informers.Unstructured(ingresses),
		gateways:    deps.Informers.GatewayInstances(),
		assignments: deps.Informers.Assignments(),
		claims:      deps.Informers.HostClaims(),
	}
	c.loop = reconciler.New[logicalcluster.Key]("ingress", c)
	c.ingresses.AddHandler(func(e informer.Event[*unstructured.Unstructured]) {
		if !e.Deleted {
			c.loop.EnqueueAfter(e.Key, debounce)
		}
	})
	c.gateways.AddHandler(func(informer.Event[*networkingv1alpha1.GatewayInstance]) { c.loop.Enqueue(fleet) })
	c.claims.AddHandler(func(e informer.Event[*networkingv1alpha1.HostClaim]) { c.loop.Enqueue(e.Key) })
	c.assignments.AddHandler(func(e informer.Event[*schedulingv1alpha1.Assignment]) {
		if !e.Added && !e.Deleted {
			return
		}
		for _, i := range c.ingresses.ListNamespace(e.Key.Cluster, e.Key.Namespace) {
			c.loop.EnqueueAfter(logicalcluster.KeyOf(i), debounce)
		}
	})
	return c
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	if c.ingresses.WaitForSync(ctx) && c.gateways.WaitForSync(ctx) && c.assignments.WaitForSync(ctx) && c.claims.WaitForSync(ctx) {
		c.loop.Enqueue(fleet)
		c.loop.Run(ctx)
	}
}

// Reconcile writes one Ingress's status, or looks which gateways are live.
func (c *Controller) Reconcile(ctx context.Context, key logicalcluster.Key) (reconciler.Result, error) {
	if key == fleet {
		return c.lookAtGateways(), nil
	}
	obj, ok := c.ingresses.Get(key.Cluster, key.Namespace, key.Name)
	if !ok {
		return reconciler.Result{}, nil
	}
	c.mu.Lock()
	addresses := c.addresses
	c.mu.Unlock()
	if addresses == nil {
		// The first look at the gateways enqueues every Ingress.
		return reconciler.Result{}, nil
	}
	reached := slices.ContainsFunc(c.assignments.ListNamespace(key.Cluster, key.Namespace), (*schedulingv1alpha1.Assignment).ServedByGateways)
	if !handover.ServedByGateways(obj) || !reached || !c.holdsAny(obj) {
		addresses = nil
	}
	want := points(addresses)
	have, _, _ := unstructured.NestedSlice(obj.Object, "status", "loadBalancer", "ingress")
	if len(have) == 0 && len(want) == 0 || reflect.DeepEqual(have, want) {
		return reconciler.Result{}, nil
	}
	updated := obj.DeepCopy()
	if err := unstructured.SetNestedSlice(updated.Object, want, "status", "loadBalancer", "ingress"); err != nil {
		return reconciler.Result{}, fmt.Errorf("cannot set the status of Ingress %q: %w", key.Name, err)
	}
	_, err := c.deps.Clients.Dynamic(key.Cluster).Resource(ingresses).Namespace(key.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return reconciler.Result{}, fmt.Errorf("cannot update the status of Ingress %q: %w", key.Name, err)
	}
	return reconciler.Result{}, nil
}

// holdsAny reports whether the workspace holds a host of its Ingress.
func (c *Controller) holdsAny(obj *unstructured.Unstructured) bool {
	claim, ok := c.claims.Get(logicalcluster.From(obj), obj.GetNamespace(), obj.GetName())
	return ok && claim.Spec.IngressUID == obj.GetUID() &&
		slices.ContainsFunc(claim.Spec.Hosts, func(h networkingv1alpha1.ClaimedHost) bool { return h.Held })
}

// lookAtGateways finds the live gateways' addresses and, if they changed, has every
// Ingress looked at.
func (c *Controller) lookAtGateways() reconciler.Result {
	now := c.deps.Clock.Now()
	addresses := []string{}
	var next time.Duration
	for _, g := range c.deps.Leases.List(now) {
		left := handover.LeaseExpiry(g).Sub(now)
		if left <= 0 {
			continue
		}
		if next == 0 || left < next {
			next = left
		}
		addresses = append(addresses, g.Spec.Addresses...)
	}
	slices.Sort(addresses)
	addresses = slices.Compact(addresses)
	c.mu.Lock()
	changed := c.addresses == nil || !slices.Equal(c.addresses, addresses)
	c.addresses = addresses
	c.mu.Unlock()
	if changed {
		for _, i := range c.ingresses.List() {
			c.loop.Enqueue(logicalcluster.KeyOf(i))
		}
	}
	return reconciler.Result{RequeueAfter: next}
}

// points turns addresses into load balancer ingress points: by IP, or by host name.
func points(addresses []string) []any {
	var out []any
	for _, a := range addresses {
		field := "hostname"
		if net.ParseIP(a) != nil {
			field = "ip"
		}
		out = append(out, map[string]any{field: a})
	}
	return out
}
