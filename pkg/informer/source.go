package informer

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// ListFunc and WatchFunc are the two calls of a client, e.g. a dynamic client's
// Resource(gvr).List and Watch.
type (
	ListFunc  func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	WatchFunc func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
)

type reflectSource struct {
	list  ListFunc
	watch WatchFunc
}

// Reflect returns a source that lists once and then watches, resuming where a watch
// ended.
func Reflect(list ListFunc, watch WatchFunc) Source { return reflectSource{list, watch} }

func (r reflectSource) run(ctx context.Context, name string, example any, store cache.ReflectorStore) {
	lw := plainListWatch{&cache.ListWatch{ListWithContextFunc: cache.ListWithContextFunc(r.list), WatchFuncWithContext: cache.WatchFuncWithContext(r.watch)}}
	logger := klog.FromContext(ctx)
	cache.NewReflectorWithOptions(lw, nil, store, cache.ReflectorOptions{
		Name:            name,
		TypeDescription: fmt.Sprintf("%T", example),
		Logger:          &logger,
	}).RunWithContext(ctx)
}

// plainListWatch keeps the Reflector from using WatchList, for which it gathers objects
// in a temporary store keyed by namespace and name: equal names of different clusters
// would overwrite each other there.
type plainListWatch struct{ *cache.ListWatch }

func (plainListWatch) IsWatchListSemanticsUnSupported() bool { return true }

type streamSource struct{ watch WatchFunc }

// Stream returns a source for streams that span clusters and cannot be resumed: each
// begins with the whole state, then a bookmark, then changes. When a stream ends, the
// next one starts anew and the store is brought to its state by difference.
func Stream(watch WatchFunc) Source { return streamSource{watch} }

// streamBackoff spreads reconnects: from 50 ms up to about 5 s.
var streamBackoff = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 8, Cap: 5 * time.Second}

func (s streamSource) run(ctx context.Context, name string, _ any, store cache.ReflectorStore) {
	logger := klog.FromContext(ctx).WithValues("resource", name)
	backoff := streamBackoff
	for ctx.Err() == nil {
		synced, err := s.once(ctx, store)
		if ctx.Err() != nil {
			return
		}
		if synced {
			backoff = streamBackoff
		}
		delay := backoff.Step()
		logger.V(2).Info("Stream ended, starting a new one", "err", err, "delay", delay)
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// once follows one stream; synced reports whether its initial state was complete.
func (s streamSource) once(ctx context.Context, store cache.ReflectorStore) (synced bool, err error) {
	w, err := s.watch(ctx, metav1.ListOptions{
		SendInitialEvents:    ptr.To(true),
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		AllowWatchBookmarks:  true,
	})
	if err != nil {
		return false, err
	}
	defer w.Stop()
	var initial []any
	for {
		select {
		case <-ctx.Done():
			return synced, ctx.Err()
		case event, ok := <-w.ResultChan():
			if !ok {
				return synced, errors.New("stream closed")
			}
			if synced {
				if err := apply(store, event); err != nil {
					return true, err
				}
				continue
			}
			done, err := collect(&initial, event, store)
			if err != nil {
				return false, err
			}
			if done {
				if err := store.Replace(initial, ""); err != nil {
					return false, err
				}
				synced, initial = true, nil
			}
		}
	}
}

// collect gathers the initial state; done at the bookmark that ends it. Changes may be
// mixed in before the bookmark, so the last word on a key counts.
func collect(initial *[]any, event watch.Event, store cache.ReflectorStore) (done bool, err error) {
	switch event.Type {
	case watch.Added, watch.Modified:
		obj := any(event.Object)
		if e, ok := store.(encoder); ok {
			// All of them at once are much, so they wait as they are kept.
			if obj, err = e.encode(obj); err != nil {
				return false, err
			}
		}
		*initial = append(*initial, obj)
		return false, nil
	case watch.Deleted:
		key, err := storeKey(event.Object)
		if err != nil {
			return false, err
		}
		kept := (*initial)[:0]
		for _, obj := range *initial {
			if other, err := storeKey(obj); err == nil && other != key {
				kept = append(kept, obj)
			}
		}
		*initial = kept
		return false, nil
	case watch.Bookmark:
		obj, ok := event.Object.(metav1.Object)
		return ok && obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true", nil
	default:
		return false, eventError(event)
	}
}

func apply(store cache.ReflectorStore, event watch.Event) error {
	switch event.Type {
	case watch.Added, watch.Modified:
		return store.Update(event.Object)
	case watch.Deleted:
		return store.Delete(event.Object)
	case watch.Bookmark:
		return nil
	default:
		return eventError(event)
	}
}

func eventError(event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	return fmt.Errorf("unknown watch event type %q", event.Type)
}
