package syncer

import (
	"context"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// objectCache holds the objects of one resource of the physical cluster, by namespace
// and name, and tells one handler of every change.
//
// It is a Reflector and a store. client-go's shared informers have queues and goroutines
// for several handlers, five times the memory of this, and the syncer runs two caches
// for every namespace of a tenant.
type objectCache struct {
	name      string
	source    *cache.ListWatch
	transform func(*unstructured.Unstructured) *unstructured.Unstructured
	// handle is called for whatever happens to an object, in order, and must not block.
	handle func(*unstructured.Unstructured)
	store  cache.Indexer
	synced atomic.Bool
	whole  chan struct{}
}

// newCache returns a cache of what selector picks in namespace, or everywhere when that
// is empty. transform changes objects before they are stored.
func newCache(client dynamic.Interface, gvr schema.GroupVersionResource, namespace, selector string, transform func(*unstructured.Unstructured) *unstructured.Unstructured) *objectCache {
	resource := client.Resource(gvr).Namespace(namespace)
	return &objectCache{
		name: gvr.GroupResource().String(),
		source: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				options.LabelSelector = selector
				return resource.List(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				options.LabelSelector = selector
				return resource.Watch(ctx, options)
			},
		},
		transform: transform,
		handle:    func(*unstructured.Unstructured) {},
		store:     cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		whole:     make(chan struct{}),
	}
}

// run follows the physical cluster until ctx ends.
func (c *objectCache) run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	cache.NewReflectorWithOptions(c.source, nil, (*cacheSink)(c), cache.ReflectorOptions{
		Name: c.name, TypeDescription: c.name, Logger: &logger,
	}).RunWithContext(ctx)
}

// hasSynced reports whether the cache has held the whole state once.
func (c *objectCache) hasSynced() bool { return c.synced.Load() }

// waitForSync blocks until hasSynced or until ctx ends; it reports which.
func (c *objectCache) waitForSync(ctx context.Context) bool {
	select {
	case <-c.whole:
		return true
	case <-ctx.Done():
		return false
	}
}

// get returns one object; namespace is empty for those that have none.
func (c *objectCache) get(namespace, name string) (*unstructured.Unstructured, bool) {
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	obj, ok, _ := c.store.GetByKey(key)
	if !ok {
		return nil, false
	}
	u, ok := obj.(*unstructured.Unstructured)
	return u, ok
}

func (c *objectCache) list() []*unstructured.Unstructured { return objects(c.store.List()) }

func (c *objectCache) listNamespace(namespace string) []*unstructured.Unstructured {
	// The only error is that there is no such index.
	items, _ := c.store.ByIndex(cache.NamespaceIndex, namespace)
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

// cacheSink is the side of an objectCache that the Reflector writes to.
type cacheSink objectCache

func (s *cacheSink) Add(obj any) error { return s.Update(obj) }

func (s *cacheSink) Update(obj any) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	u = s.transform(u)
	if err := s.store.Update(u); err != nil {
		return err
	}
	s.handle(u)
	return nil
}

func (s *cacheSink) Delete(obj any) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	if err := s.store.Delete(u); err != nil {
		return err
	}
	s.handle(s.transform(u))
	return nil
}

// Replace makes the store hold exactly objs. Objects that did not change are handled,
// too, which costs a look at each.
func (s *cacheSink) Replace(objs []any, resourceVersion string) error {
	gone := map[string]any{}
	for _, obj := range s.store.List() {
		if key, err := cache.MetaNamespaceKeyFunc(obj); err == nil {
			gone[key] = obj
		}
	}
	kept := make([]any, 0, len(objs))
	for _, obj := range objs {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		kept = append(kept, s.transform(u))
		if key, err := cache.MetaNamespaceKeyFunc(u); err == nil {
			delete(gone, key)
		}
	}
	if err := s.store.Replace(kept, resourceVersion); err != nil {
		return err
	}
	for _, u := range objects(kept) {
		s.handle(u)
	}
	for _, obj := range gone {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			s.handle(u)
		}
	}
	if !s.synced.Swap(true) {
		close(s.whole)
	}
	return nil
}

func (s *cacheSink) Resync() error { return nil }
