package syncer

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/flowcontrol"
)

// Events are watched where something happens, and only there: a watch takes as much
// memory as a hundred objects.
const (
	// maxListening is in how many namespaces at a time.
	maxListening = 100
	// listenFor is how long after the last that happened.
	listenFor = 5 * time.Minute
	// listenAtLeast is how long before another namespace may have the place.
	listenAtLeast = time.Minute
)

// telling is what the tenant of one namespace is told of events there.
type telling struct {
	limit flowcontrol.PassiveRateLimiter
	// told remembers what the tenant was told.
	told *sync.Map // name of the event downstream → told
	// events is nil while nobody listens, stop with it.
	events *objectCache
	stop   context.CancelFunc
	// touched is when something happened last.
	touched time.Time
	// newest is the newest revision of an event that was seen.
	newest uint64
}

type told struct {
	version string
	at      time.Time
}

func newTelling() telling {
	return telling{limit: flowcontrol.NewTokenBucketPassiveRateLimiter(eventRate, eventBurst), told: &sync.Map{}}
}

// end stops listening.
func (t *telling) end() {
	if t.events != nil {
		t.stop()
		t.events, t.stop = nil, nil
	}
}

// events returns the events of one namespace, and what was told of them; false while
// nobody listens.
func (d *downstream) events(namespace string) (*objectCache, telling, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tenants[namespace]
	if !ok || t.telling.events == nil {
		return nil, telling{}, false
	}
	return t.telling.events, t.telling, true
}

// listens reports whether the events of a namespace are watched.
func (d *downstream) listens(namespace string) bool {
	_, _, ok := d.events(namespace)
	return ok
}

// happened notes the newest event of a namespace and reports whether it is news. recent
// decides where none was seen before.
func (d *downstream) happened(namespace string, newest uint64, recent bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tenants[namespace]
	if !ok || newest <= t.telling.newest {
		return false
	}
	news := t.telling.newest > 0 || recent
	t.telling.newest = newest
	return news
}

// listen begins or goes on to watch the events of a namespace, unless too many others
// have a better claim; tell is called for each event.
func (d *downstream) listen(ctx context.Context, namespace string, now time.Time, tell func(namespaceKey, *unstructured.Unstructured)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tenants[namespace]
	if !ok {
		return
	}
	t.telling.touched = now
	if t.telling.events != nil || !d.makeRoomLocked(now) {
		return
	}
	ctx, t.telling.stop = context.WithCancel(ctx)
	c := newCache(d.client, eventsGVR, namespace, "", strip)
	c.handle = func(o *unstructured.Unstructured) { tell(t.key, o) }
	t.telling.events = c
	go c.run(ctx)
}

// makeRoomLocked reports whether one more namespace can be listened to, and gives up the
// quietest one for it.
func (d *downstream) makeRoomLocked(now time.Time) bool {
	listening := 0
	var quietest *tenant
	for _, t := range d.tenants {
		if t.telling.events == nil {
			continue
		}
		listening++
		if quietest == nil || t.telling.touched.Before(quietest.telling.touched) {
			quietest = t
		}
	}
	if listening < maxListening {
		return true
	}
	if now.Sub(quietest.telling.touched) < listenAtLeast {
		return false
	}
	quietest.telling.end()
	return true
}

// hush stops to listen where nothing has happened for a while, and forgets what was told
// of events that are gone by now.
func (d *downstream) hush(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tenants {
		if t.telling.events == nil || now.Sub(t.telling.touched) < listenFor {
			continue
		}
		t.telling.end()
		t.telling.told.Range(func(name, value any) bool {
			if now.Sub(value.(told).at) > eventLifetime {
				t.telling.told.Delete(name)
			}
			return true
		})
	}
}

// touch has the events of a namespace watched for a while, since something happens there.
func (s *session) touch(namespace string) {
	if !s.working.Load() {
		// What is there at the beginning is no news.
		return
	}
	s.down.listen(s.ctx, namespace, time.Now(), func(key namespaceKey, event *unstructured.Unstructured) {
		s.down.happened(namespace, revision(event.GetResourceVersion()), true)
		s.touch(namespace)
		s.eventQueue.Enqueue(eventKey{key, event.GetName()})
	})
}
