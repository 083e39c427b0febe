package syncer

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
)

var (
	namespacesGVR   = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	nodesGVR        = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	roleBindingsGVR = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
)

// downstream is the physical cluster: a client, and caches of what the syncer has there.
type downstream struct {
	client     dynamic.Interface
	selector   string
	namespaces *objectCache
	nodes      *objectCache
	pods       *objectCache
	slices     *objectCache
	// replicaSets may lack the right to list, under an older manifest.
	replicaSets *objectCache
	// copies holds the caches of the resources that are watched by label.
	copies map[resources.Resource]*objectCache

	mu sync.Mutex
	// tenants holds the caches of the resources that are watched per namespace, by
	// downstream namespace.
	tenants map[string]*tenant
}

// tenant holds the caches of one namespace.
type tenant struct {
	// uid is the namespace's, so that one made anew gets access and caches anew.
	uid    types.UID
	caches map[resources.Resource]*objectCache
	// told are the events there. Nothing waits for them.
	told   *objectCache
	events *tellings
	stop   context.CancelFunc
}

func newDownstream(client dynamic.Interface, instanceID string, synced []resources.Resource) *downstream {
	d := &downstream{
		client:   client,
		selector: names.SyncerLabel + "=" + instanceID,
		copies:   map[resources.Resource]*objectCache{},
		tenants:  map[string]*tenant{},
	}
	d.namespaces = newCache(client, namespacesGVR, "", d.selector, strip)
	d.nodes = newCache(client, nodesGVR, "", "", stripNode)
	d.pods = newCache(client, resources.Pods.GroupVersionResource, "", "", stripForeign)
	d.replicaSets = newCache(client, resources.ReplicaSets.GroupVersionResource, "", "", stripForeign)
	d.slices = newCache(client, resources.EndpointSlices.GroupVersionResource, "", "", stripForeign)
	for _, r := range synced {
		switch {
		case r.Confidential:
		case r == resources.Pods:
			d.copies[r] = d.pods
		default:
			d.copies[r] = newCache(client, r.GroupVersionResource, "", d.selector, strip)
		}
	}
	return d
}

// strip drops what the syncer never looks at.
func strip(o *unstructured.Unstructured) *unstructured.Unstructured {
	o.SetManagedFields(nil)
	return o
}

// stripForeign keeps of objects outside of namespaces made for tenants, by any syncer,
// the identity only.
func stripForeign(o *unstructured.Unstructured) *unstructured.Unstructured {
	if names.IsTenantNamespace(o.GetNamespace()) {
		return strip(o)
	}
	return identityOf(o)
}

func identityOf(o *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	out.SetGroupVersionKind(o.GroupVersionKind())
	out.SetNamespace(o.GetNamespace())
	out.SetName(o.GetName())
	out.SetUID(o.GetUID())
	out.SetResourceVersion(o.GetResourceVersion())
	return out
}

// stripNode keeps a node's capacity.
func stripNode(o *unstructured.Unstructured) *unstructured.Unstructured {
	out := identityOf(o)
	status := map[string]any{}
	for _, field := range []string{"capacity", "allocatable"} {
		if value, ok, _ := unstructured.NestedFieldNoCopy(o.Object, "status", field); ok {
			status[field] = value
		}
	}
	out.Object["status"] = status
	return out
}

// caches returns all caches that are not per namespace.
func (d *downstream) caches() []*objectCache {
	all := []*objectCache{d.namespaces, d.nodes, d.pods, d.replicaSets, d.slices}
	for r, c := range d.copies {
		if r != resources.Pods {
			all = append(all, c)
		}
	}
	return all
}

// namespace returns a namespace of ours from the cache.
func (d *downstream) namespace(name string) (*unstructured.Unstructured, bool) {
	return d.namespaces.get("", name)
}

// copiesOf returns the cache that holds the copies of r in namespace; false while there
// is none.
func (d *downstream) copiesOf(r resources.Resource, namespace string) (*objectCache, bool) {
	if !r.Confidential {
		c, ok := d.copies[r]
		return c, ok
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tenants[namespace]
	if !ok {
		return nil, false
	}
	c, ok := t.caches[r]
	return c, ok
}

// ready reports whether objects can be applied in namespace: the caches know it and it
// is not on its way out, and its own caches are whole.
func (d *downstream) ready(namespace string) bool {
	ns, ok := d.namespace(namespace)
	if !ok || ns.GetDeletionTimestamp() != nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tenants[namespace]
	if !ok || t.uid != ns.GetUID() {
		return false
	}
	for _, c := range t.caches {
		if !c.hasSynced() {
			return false
		}
	}
	return true
}

// has reports whether the caches of namespace were started.
func (d *downstream) has(namespace *unstructured.Unstructured) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tenants[namespace.GetName()]
	return ok && t.uid == namespace.GetUID()
}

// start starts the caches of one namespace. They run until stop, or until ctx ends;
// synced is called when all are whole. Those of an earlier namespace of the name end.
func (d *downstream) start(ctx context.Context, ns *unstructured.Unstructured, confidential []resources.Resource, handle func(resources.Resource, *unstructured.Unstructured), tell func(event string), synced func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	namespace := ns.GetName()
	if earlier, ok := d.tenants[namespace]; ok {
		earlier.stop()
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &tenant{uid: ns.GetUID(), caches: map[resources.Resource]*objectCache{}, stop: cancel}
	for _, r := range confidential {
		c := newCache(d.client, r.GroupVersionResource, namespace, d.selector, strip)
		c.handle = func(o *unstructured.Unstructured) { handle(r, o) }
		t.caches[r] = c
		go c.run(ctx)
	}
	t.told, t.events = newCache(d.client, eventsGVR, namespace, "", strip), newTellings()
	t.told.handle = func(o *unstructured.Unstructured) { tell(o.GetName()) }
	go t.told.run(ctx)
	d.tenants[namespace] = t
	go func() {
		for _, c := range t.caches {
			if !c.waitForSync(ctx) {
				return
			}
		}
		synced()
	}()
}

// events returns the events of one namespace, and what was told of them; false while
// there are none.
func (d *downstream) events(namespace string) (*objectCache, *tellings, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tenants[namespace]
	if !ok {
		return nil, nil, false
	}
	return t.told, t.events, true
}

// stop ends the caches of one namespace.
func (d *downstream) stop(namespace string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t, ok := d.tenants[namespace]; ok {
		t.stop()
		delete(d.tenants, namespace)
	}
}

// namespaced returns a client for one resource in one namespace.
func (d *downstream) namespaced(r resources.Resource, namespace string) dynamic.ResourceInterface {
	return d.client.Resource(r.GroupVersionResource).Namespace(namespace)
}
