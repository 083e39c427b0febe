// Package informertest feeds an informer from a test.
package informertest

import (
	"context"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/13eedeaf/kcp/pkg/informer"
)

// Feed is the source of a running informer.
type Feed[T informer.Object] struct {
	t        testing.TB
	stream   *watch.FakeWatcher
	bookmark runtime.Object
	revision int
}

// New returns a running, synced informer that holds objs, and its feed. It stops when
// the test ends. example is any object of the kind.
func New[T informer.Object](t testing.TB, example T, objs ...T) (*informer.Informer[T], *Feed[T]) {
	t.Helper()
	f := &Feed[T]{t: t, stream: watch.NewFake()}
	bookmark := example.DeepCopyObject().(T)
	bookmark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	f.bookmark = bookmark

	i := informer.New[T]("test", informer.Stream(func(context.Context, metav1.ListOptions) (watch.Interface, error) {
		return f.stream, nil
	}), nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		i.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	for _, obj := range objs {
		f.send(watch.Added, obj)
	}
	f.flush()
	f.flush()
	return i, f
}

// Put adds or replaces obj, under a new resource version, and returns when all handlers
// have been called.
func (f *Feed[T]) Put(obj T) {
	f.t.Helper()
	f.send(watch.Modified, obj)
	f.flush()
}

// Delete removes obj, and returns when all handlers have been called.
func (f *Feed[T]) Delete(obj T) {
	f.t.Helper()
	f.send(watch.Deleted, obj)
	f.flush()
}

func (f *Feed[T]) send(typ watch.EventType, obj T) {
	f.revision++
	sent := obj.DeepCopyObject().(T)
	sent.SetResourceVersion(strconv.Itoa(f.revision))
	f.stream.Action(typ, sent)
}

// flush sends what the informer ignores: the channel has no buffer, so that when this
// is taken, what came before has been worked on.
func (f *Feed[T]) flush() { f.stream.Action(watch.Bookmark, f.bookmark) }
