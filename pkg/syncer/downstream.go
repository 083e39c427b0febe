package syncer

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
)

var (
	namespacesGVR   = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	nodesGVR        = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	roleBindingsGVR = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
)

// downstream is the physical cluster: clients, and caches of what the syncer has there.
type downstream struct {
	client dynamic.Interface
	// metadata reads what can be told without the objects' content.
	metadata   metadata.Interface
	selector   string
	namespaces *objectCache
	nodes      *objectCache
	pods       *objectCache
	slices     *objectCache
	// replicaSets may lack the right to list, under an older manifest.
	replicaSets *objectCache
	// copies holds the caches of the resources that are watched by label.
	copies map[resources.Resource]*objectCache

	// confidential are the resources that are not watched; see ledger.
	confidential []resources.Resource

	mu      sync.Mutex
	tenants map[string]*tenant // by downstream namespace
}

// tenant is what is known of one namespace beside what the caches hold.
type tenant struct {
	// uid is the namespace's, so that one made anew gets access and a ledger anew.
	uid     types.UID
	key     namespaceKey
	applied ledger
	telling telling
}

func newDownstream(client dynamic.Interface, metadata metadata.Interface, instanceID string, synced []resources.Resource) *downstream {
	d := &downstream{
		client:   client,
		metadata: metadata,
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
			d.confidential = append(d.confidential, r)
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

// stripForeign keeps nothing of objects outside of namespaces made for tenants, by any
// syncer.
func stripForeign(o *unstructured.Unstructured) *unstructured.Unstructured {
	if names.IsTenantNamespace(o.GetNamespace()) {
		return strip(o)
	}
	return &unstructured.Unstructured{}
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

// ready reports whether objects can be applied in namespace: the caches know it and it
// is not on its way out, and it was opened.
func (d *downstream) ready(namespace string) bool {
	ns, ok := d.namespace(namespace)
	return ok && ns.GetDeletionTimestamp() == nil && d.has(ns)
}

// has reports whether namespace was opened.
func (d *downstream) has(namespace *unstructured.Unstructured) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tenants[namespace.GetName()]
	return ok && t.uid == namespace.GetUID()
}

// open makes a namespace one to work in, with what was applied there before. An earlier
// one of the name is closed.
func (d *downstream) open(ns *unstructured.Unstructured, key namespaceKey, applied ledger) {
	d.close(ns.GetName())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tenants[ns.GetName()] = &tenant{uid: ns.GetUID(), key: key, applied: applied, telling: newTelling()}
}

// close forgets a namespace.
func (d *downstream) close(namespace string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t, ok := d.tenants[namespace]; ok {
		t.telling.end()
		delete(d.tenants, namespace)
	}
}

// opened returns the namespaces that are open.
func (d *downstream) opened() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.tenants))
}

// namespaced returns a client for one resource in one namespace.
func (d *downstream) namespaced(r resources.Resource, namespace string) dynamic.ResourceInterface {
	return d.client.Resource(r.GroupVersionResource).Namespace(namespace)
}
