package hostclaim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/reconciler/events"
	"github.com/13eedeaf/kcp/pkg/reconciler/handover"
	"github.com/13eedeaf/kcp/pkg/reconciler/informers"
)

var ingresses = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}

const (
	// component is the source that events name.
	component = "kcp-ingress"
	// maxNamed is how many hosts a message names.
	maxNamed = 5
)

// Deps is what the controller works with.
type Deps struct {
	Clients   *clients.Clients
	Informers *informers.Set
	Clock     clock.PassiveClock
}

// Controller keeps the HostClaims.
type Controller struct {
	deps      Deps
	ingresses *informer.Informer[*unstructured.Unstructured]
	claims    *informer.Informer[*networkingv1alpha1.HostClaim]
	loop      *reconciler.Controller[logicalcluster.Key]
	events    *events.Recorder

	// mu guards registry, nil until everything is known.
	mu       sync.Mutex
	registry *registry
}

// New returns the controller; Run starts it. Call it before the informers start.
func New(deps Deps) *Controller {
	c := &Controller{
		deps:      deps,
		ingresses: deps.Informers.Unstructured(ingresses),
		claims:    deps.Informers.HostClaims(),
		events:    &events.Recorder{Clients: deps.Clients, Clock: deps.Clock, Component: component},
	}
	c.loop = reconciler.New[logicalcluster.Key]("hostclaim", c)
	c.ingresses.AddHandler(func(e informer.Event[*unstructured.Unstructured]) {
		c.note(e.Key)
		c.loop.Enqueue(e.Key)
	})
	c.claims.AddHandler(func(e informer.Event[*networkingv1alpha1.HostClaim]) { c.loop.Enqueue(e.Key) })
	return c
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	if !c.ingresses.WaitForSync(ctx) || !c.claims.WaitForSync(ctx) {
		return
	}
	c.seed()
	c.loop.Run(ctx)
}

func (c *Controller) seed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.registry = newRegistry()
	var wishes []*wish
	for _, obj := range c.ingresses.List() {
		w := wishOf(logicalcluster.KeyOf(obj), obj)
		c.loop.Enqueue(w.ingress)
		if len(w.hosts) > 0 {
			wishes = append(wishes, w)
		}
	}
	c.registry.seed(wishes, func(w *wish, host string) bool {
		claim, ok := c.claims.Get(w.ingress.Cluster, w.ingress.Namespace, w.ingress.Name)
		return ok && claim.Holds(w.uid, host)
	})
}

// note tells the registry what an Ingress names now, and has every other Ingress looked
// at of which a host was given to somebody.
func (c *Controller) note(key logicalcluster.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.registry == nil {
		return
	}
	w := &wish{ingress: key}
	if obj, ok := c.ingresses.Get(key.Cluster, key.Namespace, key.Name); ok {
		w = wishOf(key, obj)
	}
	for other := range c.registry.put(w) {
		if other != key {
			c.loop.Enqueue(other)
		}
	}
}

// wishOf returns what an Ingress names; one that gateways do not serve names nothing.
func wishOf(key logicalcluster.Key, obj *unstructured.Unstructured) *wish {
	w := &wish{ingress: key, uid: obj.GetUID(), created: obj.GetCreationTimestamp().Time}
	if !handover.ServedByGateways(obj) {
		return w
	}
	rules, _, _ := unstructured.NestedSlice(obj.Object, "spec", "rules")
	for _, rule := range rules {
		fields, _ := rule.(map[string]any)
		host, _ := fields["host"].(string)
		w.hosts = append(w.hosts, strings.ToLower(host))
	}
	if len(rules) == 0 {
		// What its default backend serves.
		w.hosts = []string{""}
	}
	slices.Sort(w.hosts)
	w.hosts = slices.Compact(w.hosts)
	return w
}

// Reconcile brings the HostClaim of one Ingress up to date, and the Event.
func (c *Controller) Reconcile(ctx context.Context, key logicalcluster.Key) (reconciler.Result, error) {
	// The store may be ahead of what the handler has noted.
	c.note(key)
	old, exists := c.claims.Get(key.Cluster, key.Namespace, key.Name)
	obj, ok := c.ingresses.Get(key.Cluster, key.Namespace, key.Name)
	var want *networkingv1alpha1.HostClaim
	if ok {
		want = c.want(key, obj, old)
	}
	if want == nil {
		if exists {
			return reconciler.Result{}, c.remove(ctx, key, obj)
		}
		return reconciler.Result{}, nil
	}
	if err := c.tell(ctx, obj, old, want); err != nil {
		return reconciler.Result{}, err
	}
	return reconciler.Result{}, c.write(ctx, key, old, want)
}

// tell writes the Event when the verdict becomes another one, and removes it when the
// trouble is over. What has been told stands in the HostClaim, which is written after it:
// an Event that lasts costs nothing, and one that could not be written is tried again.
func (c *Controller) tell(ctx context.Context, obj *unstructured.Unstructured, old, want *networkingv1alpha1.HostClaim) error {
	var told *metav1.Condition
	if old != nil && old.Spec.IngressUID == want.Spec.IngressUID {
		told = meta.FindStatusCondition(old.Status.Conditions, networkingv1alpha1.HostsHeld)
	}
	verdict := meta.FindStatusCondition(want.Status.Conditions, networkingv1alpha1.HostsHeld)
	wasTaken := told != nil && told.Status == metav1.ConditionFalse
	switch {
	case verdict.Status == metav1.ConditionTrue && wasTaken:
		return c.events.Clear(ctx, obj, networkingv1alpha1.HostTaken)
	case verdict.Status == metav1.ConditionTrue, wasTaken && told.Message == verdict.Message:
		return nil
	}
	return c.events.Warn(ctx, events.Warning{
		Object: obj, Identity: networkingv1alpha1.HostTaken, Reason: verdict.Reason, Message: verdict.Message,
	})
}

// want returns the HostClaim that an Ingress should have; nil for none.
func (c *Controller) want(key logicalcluster.Key, obj *unstructured.Unstructured, old *networkingv1alpha1.HostClaim) *networkingv1alpha1.HostClaim {
	w := wishOf(key, obj)
	if len(w.hosts) == 0 {
		return nil
	}
	want := &networkingv1alpha1.HostClaim{ObjectMeta: metav1.ObjectMeta{Name: key.Name, Namespace: key.Namespace}}
	if old != nil {
		want = old.DeepCopy()
	}
	want.Spec = networkingv1alpha1.HostClaimSpec{IngressUID: w.uid}
	var taken []string
	c.mu.Lock()
	for _, host := range w.hosts {
		held := c.registry.holds(key.Cluster, host)
		want.Spec.Hosts = append(want.Spec.Hosts, networkingv1alpha1.ClaimedHost{Host: host, Held: held})
		if !held {
			taken = append(taken, host)
		}
	}
	c.mu.Unlock()
	condition := metav1.Condition{
		Type: networkingv1alpha1.HostsHeld, Status: metav1.ConditionTrue, Reason: "Held", Message: "Every host is this workspace's.",
		LastTransitionTime: metav1.NewTime(c.deps.Clock.Now()),
	}
	if len(taken) > 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, networkingv1alpha1.HostTaken, sayTaken(taken)
	}
	meta.SetStatusCondition(&want.Status.Conditions, condition)
	return want
}

// sayTaken says what is wrong and what can be done. It names nobody.
func sayTaken(hosts []string) string {
	named := make([]string, 0, maxNamed)
	for _, host := range hosts[:min(len(hosts), maxNamed)] {
		if host == "" {
			named = append(named, "a rule without a host")
			continue
		}
		named = append(named, fmt.Sprintf("%q", host))
	}
	list := strings.Join(named, ", ")
	if more := len(hosts) - len(named); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return "Not served here, since it is already in use elsewhere: " + list + ". Choose another host; should this one become free, it is served here by itself."
}

func (c *Controller) write(ctx context.Context, key logicalcluster.Key, old, want *networkingv1alpha1.HostClaim) error {
	client := c.deps.Clients.HostClaims(key.Cluster, key.Namespace)
	var err error
	switch {
	case old == nil:
		_, err = client.Create(ctx, want, metav1.CreateOptions{})
		// One that is there already comes as an event; a namespace or workspace that is
		// being deleted takes nothing new.
		if apierrors.IsAlreadyExists(err) || apierrors.IsForbidden(err) {
			return nil
		}
	case !equality.Semantic.DeepEqual(old, want):
		_, err = client.Update(ctx, want, metav1.UpdateOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot write HostClaim %q: %w", key.Name, err)
	}
	return nil
}

// remove deletes the HostClaim of an Ingress that is gone, or that gateways no longer
// serve; obj is nil when it is gone.
func (c *Controller) remove(ctx context.Context, key logicalcluster.Key, obj *unstructured.Unstructured) error {
	if obj != nil {
		if err := c.events.Clear(ctx, obj, networkingv1alpha1.HostTaken); err != nil {
			return err
		}
	}
	err := c.deps.Clients.HostClaims(key.Cluster, key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete HostClaim %q: %w", key.Name, err)
	}
	return nil
}
