package syncer

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// objectCache holds the objects of one resource of the physical cluster, by namespace
// and name, and tells one handler of every change.
//
// It is a Reflector and a store. client-go's shared informers have queues and goroutines
// for several handlers, and hold objects as maps.
type objectCache struct {
	name      string
	source    *cache.ListWatch
	transform func(*unstructured.Unstructured) *unstructured.Unstructured
	// handle is called for whatever happens to an object, in order, and must not block.
	handle func(*unstructured.Unstructured)
	synced atomic.Bool
	whole  chan struct{}

	mu sync.RWMutex
	// objects are encoded, by namespace and name.
	objects map[string]map[string][]byte
}

// newCache returns a cache of what selector picks in namespace, or everywhere when that
// is empty. transform changes objects before they are stored; what it empties is not.
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
		objects:   map[string]map[string][]byte{},
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

// has reports whether there is such an object; namespace is empty for those that have
// none.
func (c *objectCache) has(namespace, name string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.objects[namespace][name] != nil
}

// get returns one object, which is the caller's; namespace is empty for those that have
// none.
func (c *objectCache) get(namespace, name string) (*unstructured.Unstructured, bool) {
	c.mu.RLock()
	data := c.objects[namespace][name]
	c.mu.RUnlock()
	return decode(data)
}

func decode(data []byte) (*unstructured.Unstructured, bool) {
	if data == nil {
		return nil, false
	}
	// It decodes, as it was encoded here.
	obj, err := jsonCodec{}.Decode(data)
	return obj, err == nil
}

// all yields one object after the other, so that few are decoded at a time.
func (c *objectCache) all() iter.Seq[*unstructured.Unstructured] {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var data [][]byte
	for _, objects := range c.objects {
		data = slices.AppendSeq(data, maps.Values(objects))
	}
	return decoded(data)
}

func (c *objectCache) inNamespace(namespace string) iter.Seq[*unstructured.Unstructured] {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return decoded(slices.Collect(maps.Values(c.objects[namespace])))
}

func decoded(data [][]byte) iter.Seq[*unstructured.Unstructured] {
	return func(yield func(*unstructured.Unstructured) bool) {
		for _, d := range data {
			if obj, ok := decode(d); ok && !yield(obj) {
				return
			}
		}
	}
}

// put stores one object, or removes the one of its name where the transformation leaves
// nothing; it reports whether there is one to handle.
func (c *objectCache) put(obj *unstructured.Unstructured) (*unstructured.Unstructured, bool, error) {
	kept := c.transform(obj)
	if len(kept.Object) == 0 {
		return nil, false, nil
	}
	data, err := jsonCodec{}.Encode(kept)
	if err != nil {
		return nil, false, fmt.Errorf("cannot encode %s %s: %w", c.name, klog.KObj(kept), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	namespace, name := kept.GetNamespace(), kept.GetName()
	if c.objects[namespace] == nil {
		c.objects[namespace] = map[string][]byte{}
	}
	c.objects[namespace][name] = data
	return kept, true, nil
}

func (c *objectCache) remove(namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.objects[namespace], name)
	if len(c.objects[namespace]) == 0 {
		delete(c.objects, namespace)
	}
}

// retain removes the objects that are not listed, and returns them encoded.
func (c *objectCache) retain(listed map[types.NamespacedName]bool) [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var gone [][]byte
	for namespace, objects := range c.objects {
		for name, data := range objects {
			if !listed[types.NamespacedName{Namespace: namespace, Name: name}] {
				gone = append(gone, data)
				delete(objects, name)
			}
		}
		if len(objects) == 0 {
			delete(c.objects, namespace)
		}
	}
	return gone
}

// cacheSink is the side of an objectCache that the Reflector writes to.
type cacheSink objectCache

// Transformer implements cache.TransformingStore: what a list holds until it is whole is
// as small as what is stored.
func (s *cacheSink) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			// The Reflector needs names; what is left of the rest goes when it is stored.
			if kept := s.transform(u); len(kept.Object) > 0 {
				return kept, nil
			}
			return identityOf(u), nil
		}
		return obj, nil
	}
}

func (s *cacheSink) Add(obj any) error { return s.Update(obj) }

func (s *cacheSink) Update(obj any) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	kept, ok, err := (*objectCache)(s).put(u)
	if err != nil {
		return err
	}
	if ok {
		s.handle(kept)
	}
	return nil
}

func (s *cacheSink) Delete(obj any) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	(*objectCache)(s).remove(u.GetNamespace(), u.GetName())
	if gone := s.transform(u); len(gone.Object) > 0 {
		s.handle(gone)
	}
	return nil
}

// Replace makes the store hold exactly objs. Objects that did not change are handled,
// too, which costs a look at each.
func (s *cacheSink) Replace(objs []any, _ string) error {
	c := (*objectCache)(s)
	listed := make(map[types.NamespacedName]bool, len(objs))
	for _, obj := range objs {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		kept, ok, err := c.put(u)
		if err != nil {
			return err
		}
		if ok {
			listed[types.NamespacedName{Namespace: kept.GetNamespace(), Name: kept.GetName()}] = true
		}
	}
	gone := c.retain(listed)
	for obj := range c.all() {
		s.handle(obj)
	}
	for obj := range decoded(gone) {
		s.handle(obj)
	}
	if !s.synced.Swap(true) {
		close(s.whole)
	}
	return nil
}

func (s *cacheSink) Resync() error { return nil }
