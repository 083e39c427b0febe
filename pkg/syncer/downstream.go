package syncer

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

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
	namespaces cache.SharedIndexInformer
	nodes      cache.SharedIndexInformer
	pods       cache.SharedIndexInformer
	slices     cache.SharedIndexInformer
	// copies holds the caches of the resources that are watched by label.
	copies map[resources.Resource]cache.SharedIndexInformer

	mu sync.Mutex
	// tenants holds the caches of the resources that are watched per namespace, by
	// downstream namespace.
	tenants map[string]*tenant
}

// tenant holds the caches of one namespace.
type tenant struct {
	// uid is the namespace's, so that one made anew gets access and caches anew.
	uid    types.UID
	caches map[resources.Resource]cache.SharedIndexInformer
	stop   context.CancelFunc
}

func newDownstream(client dynamic.Interface, instanceID string, synced []resources.Resource) (*downstream, error) {
	d := &downstream{
		client:   client,
		selector: names.SyncerLabel + "=" + instanceID,
		copies:   map[resources.Resource]cache.SharedIndexInformer{},
		tenants:  map[string]*tenant{},
	}
	var err error
	if d.namespaces, err = d.cache(namespacesGVR, "", d.selector, strip); err != nil {
		return nil, err
	}
	if d.nodes, err = d.cache(nodesGVR, "", "", stripNode); err != nil {
		return nil, err
	}
	if d.pods, err = d.cache(resources.Pods.GroupVersionResource, "", "", stripForeign); err != nil {
		return nil, err
	}
	if d.slices, err = d.cache(resources.EndpointSlices.GroupVersionResource, "", "", stripForeign); err != nil {
		return nil, err
	}
	for _, r := range synced {
		switch {
		case r.Confidential:
		case r == resources.Pods:
			d.copies[r] = d.pods
		default:
			if d.copies[r], err = d.cache(r.GroupVersionResource, "", d.selector, strip); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

func (d *downstream) cache(gvr schema.GroupVersionResource, namespace, selector string, transform cache.TransformFunc) (cache.SharedIndexInformer, error) {
	i := dynamicinformer.NewFilteredDynamicInformer(d.client, gvr, namespace, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		func(o *metav1.ListOptions) { o.LabelSelector = selector }).Informer()
	if err := i.SetTransform(transform); err != nil {
		return nil, fmt.Errorf("cannot set up the cache of %s: %w", gvr.GroupResource(), err)
	}
	return i, nil
}

// strip drops what the syncer never looks at.
func strip(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// stripForeign keeps of objects outside of namespaces made for tenants, by any syncer,
// the identity only.
func stripForeign(obj any) (any, error) {
	o, ok := obj.(*unstructured.Unstructured)
	if !ok || names.IsTenantNamespace(o.GetNamespace()) {
		return strip(obj)
	}
	out := &unstructured.Unstructured{Object: map[string]any{}}
	out.SetGroupVersionKind(o.GroupVersionKind())
	out.SetNamespace(o.GetNamespace())
	out.SetName(o.GetName())
	out.SetUID(o.GetUID())
	out.SetResourceVersion(o.GetResourceVersion())
	return out, nil
}

// stripNode keeps a node's capacity.
func stripNode(obj any) (any, error) {
	o, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	out := &unstructured.Unstructured{Object: map[string]any{}}
	out.SetGroupVersionKind(o.GroupVersionKind())
	out.SetName(o.GetName())
	out.SetResourceVersion(o.GetResourceVersion())
	status := map[string]any{}
	for _, field := range []string{"capacity", "allocatable"} {
		if value, ok, _ := unstructured.NestedFieldNoCopy(o.Object, "status", field); ok {
			status[field] = value
		}
	}
	out.Object["status"] = status
	return out, nil
}

// caches returns all caches that are not per namespace.
func (d *downstream) caches() []cache.SharedIndexInformer {
	all := []cache.SharedIndexInformer{d.namespaces, d.nodes, d.pods, d.slices}
	for r, c := range d.copies {
		if r != resources.Pods {
			all = append(all, c)
		}
	}
	return all
}

// namespace returns a namespace of ours from the cache.
func (d *downstream) namespace(name string) (*unstructured.Unstructured, bool) {
	return get(d.namespaces, name)
}

// copiesOf returns the cache that holds the copies of r in namespace; false while there
// is none.
func (d *downstream) copiesOf(r resources.Resource, namespace string) (cache.SharedIndexInformer, bool) {
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
		if !c.HasSynced() {
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
func (d *downstream) start(ctx context.Context, ns *unstructured.Unstructured, confidential []resources.Resource, handler func(resources.Resource) cache.ResourceEventHandler, synced func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	namespace := ns.GetName()
	if earlier, ok := d.tenants[namespace]; ok {
		earlier.stop()
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &tenant{uid: ns.GetUID(), caches: map[resources.Resource]cache.SharedIndexInformer{}, stop: cancel}
	var waits []cache.InformerSynced
	for _, r := range confidential {
		c, err := d.cache(r.GroupVersionResource, namespace, d.selector, strip)
		if err != nil {
			cancel()
			return err
		}
		if _, err := c.AddEventHandler(handler(r)); err != nil {
			cancel()
			return fmt.Errorf("cannot watch %s in namespace %q: %w", r, namespace, err)
		}
		t.caches[r] = c
		waits = append(waits, c.HasSynced)
		go c.RunWithContext(ctx)
	}
	d.tenants[namespace] = t
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), waits...) {
			synced()
		}
	}()
	return nil
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

func get(c cache.SharedIndexInformer, key string) (*unstructured.Unstructured, bool) {
	obj, ok, _ := c.GetStore().GetByKey(key)
	if !ok {
		return nil, false
	}
	u, ok := obj.(*unstructured.Unstructured)
	return u, ok
}

func list(c cache.SharedIndexInformer) []*unstructured.Unstructured {
	return objects(c.GetStore().List())
}

func listNamespace(c cache.SharedIndexInformer, namespace string) []*unstructured.Unstructured {
	// The index exists on every cache that this package makes.
	items, _ := c.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	return objects(items)
}

func objects(items []any) []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, 0, len(items))
	for _, item := range items {
		if u, ok := item.(*unstructured.Unstructured); ok {
			out = append(out, u)
		}
	}
	return out
}
