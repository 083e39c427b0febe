package storage

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/utils/clock"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// trimmer is the storage that a watch cache is filled from. It makes the cache forget its
// history in time.
//
// A watch cache keeps the last events, each with the object before and after, so that a
// watch can be resumed: all of the last 75 seconds, and what is older until new events
// push it out. After a burst, such as the deletion of a tree of workspaces, no such
// number of events may come for days, and every version of every object stays in memory.
// So, when a resource has been quiet for that long, the trimmer sends fillers: deletions
// of an object that does not exist, in a cluster that does not exist, of which no watcher
// is told anything. They push out the old events, and the history shrinks to its least.
//
// A watch that was open, or has ended less than a minute ago, is not concerned: bookmarks
// have told it a later revision. Others get 410 Gone and list again, as they would have
// after any other burst.
type trimmer struct {
	storage.Interface
	clock clock.WithTicker

	mu   sync.Mutex
	ring *ring
}

const (
	// lookInterval is how often a quiet watch is looked at.
	lookInterval = 5 * time.Second
	// fillPause and fillBatch bound how fast fillers are sent, so that the watch cache's
	// other watchers, whose queues are short, need not hurry.
	fillPause, fillBatch = 2 * time.Millisecond, 8
)

// trimmed returns what a watch cache with a history of the given window is to be filled
// from. Only the least window is understood; a cache with another one is left alone.
func trimmed(s storage.Interface, window time.Duration, clock clock.WithTicker) storage.Interface {
	if window != cacher.DefaultEventFreshDuration {
		return s
	}
	return &trimmer{Interface: s, clock: clock, ring: newRing(window)}
}

// IsWatchListSemanticsUnSupported passes on what the storage below says.
func (t *trimmer) IsWatchListSemanticsUnSupported() bool { return true }

// GetList is called by the watch cache only, which then begins anew.
func (t *trimmer) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if err := t.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ring.reset(t.revisionOf(list))
	return nil
}

// revisionOf returns the revision of an object or a list; 0 for what has none.
func (t *trimmer) revisionOf(obj runtime.Object) uint64 {
	version := ""
	if list, err := meta.ListAccessor(obj); err == nil {
		version = list.GetResourceVersion()
	} else if object, err := meta.Accessor(obj); err == nil {
		version = object.GetResourceVersion()
	}
	revision, err := t.Versioner().ParseResourceVersion(version)
	if err != nil {
		return 0
	}
	return revision
}

func (t *trimmer) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	inner, err := t.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	w := &trimmedWatch{trimmer: t, inner: inner, result: make(chan watch.Event), stop: make(chan struct{})}
	go w.run()
	return w, nil
}

// trimmedWatch passes on the events of inner, and fillers between them.
type trimmedWatch struct {
	trimmer *trimmer
	inner   watch.Interface
	result  chan watch.Event
	stop    chan struct{}
	once    sync.Once
	// reached is the revision up to which inner has sent every event.
	reached string
}

func (w *trimmedWatch) ResultChan() <-chan watch.Event { return w.result }

func (w *trimmedWatch) Stop() { w.once.Do(func() { close(w.stop) }) }

func (w *trimmedWatch) run() {
	defer close(w.result)
	defer w.inner.Stop()
	look := w.trimmer.clock.NewTimer(lookInterval)
	defer look.Stop()
	for {
		select {
		case <-w.stop:
			return
		case event, ok := <-w.inner.ResultChan():
			if !ok {
				return
			}
			w.note(event)
			if !w.send(event) {
				return
			}
		case <-look.C():
			delay := lookInterval
			for range fillBatch {
				filler := w.filler()
				if filler == nil {
					break
				}
				delay = fillPause
				if !w.send(*filler) {
					return
				}
			}
			look.Reset(delay)
		}
	}
}

func (w *trimmedWatch) send(event watch.Event) bool {
	select {
	case w.result <- event:
		return true
	case <-w.stop:
		return false
	}
}

func (w *trimmedWatch) note(event watch.Event) {
	object, err := meta.Accessor(event.Object)
	if err != nil {
		return // an error, after which the watch ends
	}
	t := w.trimmer
	w.reached = object.GetResourceVersion()
	if event.Type == watch.Bookmark {
		return
	}
	recorded := t.clock.Now()
	if timed, ok := event.Object.(storage.WatchEventWithRecordTime); ok {
		recorded = timed.RecordTime()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ring.event(recorded, t.revisionOf(event.Object))
}

// filler returns the next filler that is due, if one is. Its revision is one at which
// every event of the resource has been told, and later than the last of them: a watch
// from before that is refused, rather than to miss what was pushed out.
func (w *trimmedWatch) filler() *watch.Event {
	t := w.trimmer
	reached, err := t.Versioner().ParseResourceVersion(w.reached)
	if err != nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if !t.ring.due(now, reached) {
		return nil
	}
	recorded := t.ring.next(now)
	t.ring.fill(recorded)
	object := &filler{}
	object.ResourceVersion = w.reached
	return &watch.Event{Type: watch.Deleted, Object: &timedFiller{filler: object, recorded: recorded}}
}

// fillerCluster is no name that a cluster can have.
const fillerCluster logicalcluster.Name = "~"

// filler is the object of which the watch cache is told that it was deleted.
type filler struct{ metav1.PartialObjectMetadata }

// DeepCopyObject returns a copy.
func (f *filler) DeepCopyObject() runtime.Object {
	out := &filler{}
	f.PartialObjectMetadata.DeepCopyInto(&out.PartialObjectMetadata)
	return out
}

// timedFiller tells the watch cache when the filler counts as recorded.
type timedFiller struct {
	*filler
	recorded time.Time
}

var _ storage.WatchEventWithRecordTime = &timedFiller{}

func (f *timedFiller) RecordTime() time.Time  { return f.recorded }
func (f *timedFiller) Unwrap() runtime.Object { return f.filler }
