// Package informer is the cluster-aware informer of the server's controllers, the
// virtual workspaces, the syncer and the gateway.
//
// client-go's shared informers key objects by namespace and name, so equal names in
// different logical clusters overwrite each other. This one keys by
// logicalcluster.Key and keeps one store per resource for all clusters.
//
// # Sources
//
// Reflect follows an ordinary list and watch (client-go's Reflector, resumable). Stream
// follows a virtual workspace, whose streams begin with the whole state and are never
// resumed.
//
// # Events
//
// Handlers run one after another, in the order of events, on the goroutine that feeds
// the store: they must not block. Usually they add a key to a queue. Objects in the
// store are shared: whoever changes one copies it first.
//
// # What is left out
//
// Objects are held without their managed fields, often half of them and of no use to
// readers. An update written from such a copy keeps the server's.
//
// # Memory
//
// With a Codec the store holds objects encoded, and readers get each its own. An
// unstructured object takes a tenth of its memory that way, and a read costs as many
// microseconds as it has fields. It is for those who hold much and read little.
package informer

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Object is what an informer holds.
type Object interface {
	metav1.Object
	runtime.Object
}

// Event tells one change. Old is the zero value for an object that is new, New for one
// that is gone.
type Event[T Object] struct {
	Key      logicalcluster.Key
	Old, New T
	// Added and Deleted say which of Old and New is absent; neither for an update.
	Added, Deleted bool
}

// Object returns New, or Old where the object is gone.
func (e Event[T]) Object() T {
	if e.Deleted {
		return e.Old
	}
	return e.New
}

// IndexFunc returns the values under which an object can be found.
type IndexFunc[T Object] func(obj T) []string

// clusterIndex and namespaceIndex are the two indexes that every informer has.
const (
	clusterIndex   = "cluster"
	namespaceIndex = "namespace"
)

// Informer holds all objects of one resource, of all clusters that its source shows.
type Informer[T Object] struct {
	name   string
	source Source
	// codec is nil where the store holds the objects themselves.
	codec Codec[T]

	// mu orders changes of the store and the calls of handlers.
	mu       sync.Mutex
	store    cache.Indexer
	handlers []func(Event[T])
	synced   atomic.Bool
	syncedCh chan struct{}
	revision atomic.Uint64
}

// Source feeds a store until the context ends; New* functions of this package make one.
type Source interface {
	run(ctx context.Context, name string, example any, store cache.ReflectorStore)
}

// New returns an informer of the named resource. indexers may be nil. Run starts it.
func New[T Object](name string, source Source, indexers map[string]IndexFunc[T], options ...Option[T]) *Informer[T] {
	i := &Informer[T]{name: name, source: source, syncedCh: make(chan struct{})}
	all := cache.Indexers{
		clusterIndex: func(obj any) ([]string, error) {
			return []string{string(keyOf(obj).Cluster)}, nil
		},
		namespaceIndex: func(obj any) ([]string, error) {
			key := keyOf(obj)
			return []string{namespaceKey(key.Cluster, key.Namespace)}, nil
		},
	}
	for name, f := range indexers {
		all[name] = func(obj any) ([]string, error) {
			o, err := i.decode(obj)
			if err != nil {
				return nil, err
			}
			return f(o), nil
		}
	}
	i.store = cache.NewIndexer(storeKey, all)
	for _, option := range options {
		option(i)
	}
	return i
}

func namespaceKey(cluster logicalcluster.Name, namespace string) string {
	return string(cluster) + "/" + namespace
}

func storeKey(obj any) (string, error) {
	switch o := obj.(type) {
	case cache.DeletedFinalStateUnknown:
		return o.Key, nil
	case *encoded:
		return o.name, nil
	}
	o, ok := obj.(metav1.Object)
	if !ok {
		return "", fmt.Errorf("informer: %T is no API object", obj)
	}
	key := logicalcluster.KeyOf(o)
	if key.Cluster == "" {
		return "", fmt.Errorf("informer: %T %s/%s carries no %s annotation", obj, key.Namespace, key.Name, logicalcluster.AnnotationKey)
	}
	return key.String(), nil
}

// AddHandler registers f for all changes from now on, and calls it at once for what the
// store already holds.
func (i *Informer[T]) AddHandler(f func(Event[T])) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = append(i.handlers, f)
	for _, o := range i.List() {
		f(Event[T]{Key: logicalcluster.KeyOf(o), New: o, Added: true})
	}
}

// Run follows the source until ctx ends.
func (i *Informer[T]) Run(ctx context.Context) {
	var example T
	i.source.run(ctx, i.name, example, (*sink[T])(i))
}

// HasSynced reports whether the store has held the source's whole state once.
func (i *Informer[T]) HasSynced() bool { return i.synced.Load() }

// Revision returns the revision of the server's storage up to which handlers have been
// told everything: changes, lists and bookmarks move it on. All resources of one
// storage share its revisions, so it tells whether this informer has seen what stood
// when an object of another resource was written. It means nothing for a Stream, whose
// objects come in no order of revisions.
func (i *Informer[T]) Revision() uint64 { return i.revision.Load() }

// WaitForSync blocks until HasSynced or until ctx ends; it reports which.
func (i *Informer[T]) WaitForSync(ctx context.Context) bool {
	select {
	case <-i.syncedCh:
		return true
	case <-ctx.Done():
		return false
	}
}

// Get returns one object. Namespace is empty for objects that have none.
func (i *Informer[T]) Get(cluster logicalcluster.Name, namespace, name string) (T, bool) {
	key := logicalcluster.Key{Cluster: cluster, Namespace: namespace, Name: name}
	obj, ok, _ := i.store.GetByKey(key.String())
	if !ok {
		var zero T
		return zero, false
	}
	// It decodes, as it was encoded here.
	o, err := i.decode(obj)
	return o, err == nil
}

// Keys returns the keys of all objects, and costs no decoding.
func (i *Informer[T]) Keys() []logicalcluster.Key {
	objs := i.store.List()
	keys := make([]logicalcluster.Key, len(objs))
	for n, obj := range objs {
		keys[n] = keyOf(obj)
	}
	return keys
}

// List returns the objects of all clusters.
func (i *Informer[T]) List() []T { return i.typed(i.store.List()) }

// ListCluster returns the objects of one cluster.
func (i *Informer[T]) ListCluster(cluster logicalcluster.Name) []T {
	return i.ByIndex(clusterIndex, string(cluster))
}

// ListNamespace returns the objects of one namespace of one cluster.
func (i *Informer[T]) ListNamespace(cluster logicalcluster.Name, namespace string) []T {
	return i.ByIndex(namespaceIndex, namespaceKey(cluster, namespace))
}

// ByIndex returns the objects that an index of New has under value.
func (i *Informer[T]) ByIndex(index, value string) []T {
	// The error says only that the index does not exist, which is the caller's slip and
	// shows as an empty list in its first test.
	objs, _ := i.store.ByIndex(index, value)
	return i.typed(objs)
}

func (i *Informer[T]) typed(objs []any) []T {
	out := make([]T, 0, len(objs))
	for _, obj := range objs {
		if o, err := i.decode(obj); err == nil {
			out = append(out, o)
		}
	}
	return out
}

// sink is the side of an Informer that the source writes to.
type sink[T Object] Informer[T]

func (s *sink[T]) Add(obj any) error    { return s.put(obj) }
func (s *sink[T]) Update(obj any) error { return s.put(obj) }
func (s *sink[T]) Resync() error        { return nil }

// Bookmark implements cache.ReflectorBookmarkStore.
func (s *sink[T]) Bookmark(resourceVersion string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reachLocked(resourceVersion)
	return nil
}

// reachLocked moves the revision on, after handlers were told.
func (s *sink[T]) reachLocked(resourceVersion string) {
	if rv, err := strconv.ParseUint(resourceVersion, 10, 64); err == nil && rv > s.revision.Load() {
		s.revision.Store(rv)
	}
}

func (s *sink[T]) put(obj any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.putLocked(obj); err != nil {
		return err
	}
	if o, ok := obj.(T); ok {
		s.reachLocked(o.GetResourceVersion())
	}
	return nil
}

func (s *sink[T]) putLocked(obj any) error {
	key, err := storeKey(obj)
	if err != nil {
		return err
	}
	old, exists, err := s.store.GetByKey(key)
	if err != nil {
		return err
	}
	i := (*Informer[T])(s)
	stored, err := i.encode(obj)
	if err != nil {
		return err
	}
	if err := s.store.Update(stored); err != nil {
		return err
	}
	event := Event[T]{Added: !exists}
	if event.New, err = i.decode(obj); err != nil {
		return err
	}
	if exists {
		if event.Old, err = i.decode(old); err != nil {
			return err
		}
		if event.Old.GetResourceVersion() == event.New.GetResourceVersion() && event.Old.GetUID() == event.New.GetUID() {
			return nil
		}
	}
	event.Key = logicalcluster.KeyOf(event.New)
	s.notify(event)
	return nil
}

func (s *sink[T]) Delete(obj any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, err := storeKey(obj)
	if err != nil {
		return err
	}
	if err := s.deleteLocked(key); err != nil {
		return err
	}
	if o, ok := obj.(metav1.Object); ok {
		s.reachLocked(o.GetResourceVersion())
	}
	return nil
}

func (s *sink[T]) deleteLocked(key string) error {
	old, exists, err := s.store.GetByKey(key)
	if err != nil || !exists {
		return err
	}
	if err := s.store.Delete(cache.DeletedFinalStateUnknown{Key: key, Obj: old}); err != nil {
		return err
	}
	gone, err := (*Informer[T])(s).decode(old)
	if err != nil {
		return err
	}
	s.notify(Event[T]{Key: logicalcluster.KeyOf(gone), Old: gone, Deleted: true})
	return nil
}

// Replace makes the store hold exactly objs, and tells handlers the difference, so that
// a new list after a lost watch looks to them like the changes that were missed.
func (s *sink[T]) Replace(objs []any, resourceVersion string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := map[string]bool{}
	for _, key := range s.store.ListKeys() {
		gone[key] = true
	}
	for _, obj := range objs {
		key, err := storeKey(obj)
		if err != nil {
			return err
		}
		delete(gone, key)
		if err := s.putLocked(obj); err != nil {
			return err
		}
	}
	for key := range gone {
		if err := s.deleteLocked(key); err != nil {
			return err
		}
	}
	s.reachLocked(resourceVersion)
	if !s.synced.Swap(true) {
		close(s.syncedCh)
	}
	return nil
}

func (s *sink[T]) notify(event Event[T]) {
	for _, f := range s.handlers {
		f(event)
	}
}
