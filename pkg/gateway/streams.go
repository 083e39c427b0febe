package gateway

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/13eedeaf/kcp/pkg/informer"
)

// streams knows which of the gateway's streams follow the server now, their initial
// state being in the informer's store.
type streams struct {
	// notify is called after every change; it must not block.
	notify func()

	mu sync.Mutex
	// following holds the running stream of each resource, nil while there is none.
	following map[string]*trackedWatch
}

func newStreams(notify func()) *streams {
	return &streams{notify: notify, following: map[string]*trackedWatch{}}
}

// track returns open, observed under a name. Objects that keep refuses are left out.
func (s *streams) track(name string, open informer.WatchFunc, keep func(informer.Object) bool) informer.WatchFunc {
	s.mu.Lock()
	s.following[name] = nil
	s.mu.Unlock()
	return func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		w, err := open(ctx, options)
		if err != nil {
			return nil, err
		}
		t := &trackedWatch{Interface: w, streams: s, name: name, keep: keep, out: make(chan watch.Event), done: make(chan struct{})}
		go t.run()
		return t, nil
	}
}

// whole reports whether all streams follow the server.
func (s *streams) whole() bool {
	following, all := s.count()
	return following == all
}

// count returns how many streams follow the server, and how many there should be.
func (s *streams) count() (following, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.following {
		if t != nil {
			following++
		}
	}
	return following, len(s.following)
}

func (s *streams) begun(t *trackedWatch) {
	s.mu.Lock()
	s.following[t.name] = t
	s.mu.Unlock()
	s.notify()
}

func (s *streams) ended(t *trackedWatch) {
	s.mu.Lock()
	// A later stream may have begun already.
	if s.following[t.name] == t {
		s.following[t.name] = nil
	}
	s.mu.Unlock()
	s.notify()
}

// trackedWatch passes the events of a watch on, one at a time.
type trackedWatch struct {
	watch.Interface

	streams *streams
	name    string
	keep    func(informer.Object) bool
	out     chan watch.Event
	once    sync.Once
	done    chan struct{}
}

func (t *trackedWatch) ResultChan() <-chan watch.Event { return t.out }

func (t *trackedWatch) Stop() {
	t.once.Do(func() { close(t.done) })
	t.Interface.Stop()
}

func (t *trackedWatch) run() {
	defer close(t.out)
	defer t.streams.ended(t)
	for event := range t.Interface.ResultChan() {
		if o, ok := event.Object.(informer.Object); ok && event.Type != watch.Bookmark {
			// Nobody here reads them, and they are half of many objects.
			o.SetManagedFields(nil)
			if !t.keep(o) {
				continue
			}
		}
		if !t.send(event) {
			return
		}
		if !endsInitialEvents(event) {
			continue
		}
		// The channel has no buffer, so that the informer takes a second bookmark only
		// after it has dealt with the first one: its store then holds the whole state.
		if !t.send(watch.Event{Type: watch.Bookmark, Object: &metav1.PartialObjectMetadata{}}) {
			return
		}
		t.streams.begun(t)
	}
}

func (t *trackedWatch) send(event watch.Event) bool {
	select {
	case t.out <- event:
		return true
	case <-t.done:
		return false
	}
}

func endsInitialEvents(event watch.Event) bool {
	object, ok := event.Object.(metav1.Object)
	return ok && event.Type == watch.Bookmark && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}
