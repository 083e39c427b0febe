package storage

import "time"

// Upstream's bounds of the capacity of the history in a watch cache.
const minHistory, maxHistory = 100, 100 * 1024

// ring follows, event by event, how much upstream's watch cache keeps of what has
// happened: a ring whose capacity doubles when it is full of events of less than a
// window ago, and halves when it is full and most of them are older.
type ring struct {
	window     time.Duration
	start, end int
	// times are when the events in it count as recorded, in nanoseconds.
	times []int64
	// fillers is how many of the last events in it are fillers.
	fillers int
	// last is when the last event came that is no filler, and revision its revision.
	last     time.Time
	revision uint64
}

func newRing(window time.Duration) *ring {
	return &ring{window: window, times: make([]int64, minHistory)}
}

func (r *ring) full() bool { return r.end-r.start == len(r.times) }

// before reports whether what was recorded at index i is older than a window at t.
func (r *ring) before(i int, t time.Time) bool {
	return t.UnixNano()-r.times[i%len(r.times)] > int64(r.window)
}

// event takes in an event of the resource.
func (r *ring) event(recorded time.Time, revision uint64) {
	r.add(recorded)
	r.fillers, r.last, r.revision = 0, recorded, revision
}

// fill takes in a filler.
func (r *ring) fill(recorded time.Time) {
	r.add(recorded)
	r.fillers++
}

func (r *ring) add(recorded time.Time) {
	switch {
	case !r.full():
	case !r.before(r.start, recorded):
		r.resize(min(2*len(r.times), maxHistory))
	case r.before(r.end-len(r.times)/4, recorded):
		r.resize(max(len(r.times)/2, minHistory))
	}
	if r.full() {
		r.start++
	}
	r.times[r.end%len(r.times)] = recorded.UnixNano()
	r.end++
}

func (r *ring) resize(capacity int) {
	if capacity == len(r.times) {
		return
	}
	times := make([]int64, capacity)
	r.start = max(r.start, r.end-capacity)
	for i := r.start; i < r.end; i++ {
		times[i%capacity] = r.times[i%len(r.times)]
	}
	r.times = times
}

// reset is what a new list does: the ring is empty, its capacity stays.
func (r *ring) reset(revision uint64) {
	r.start, r.fillers, r.revision = r.end, 0, revision
}

// due reports whether the ring holds more than it must: it is larger than the least,
// and all of it is older than a window. Reached is the revision up to which every
// event is in the ring.
func (r *ring) due(now time.Time, reached uint64) bool {
	if len(r.times) == minHistory && (r.fillers == 0 || r.fillers >= minHistory) {
		return false
	}
	return now.Sub(r.last) > r.window && reached > r.revision
}

// next returns when the next filler has to count as recorded to push out what is due:
// long ago until the ring is full, since the ring shrinks only then and if most of it is
// old; now from then on, which makes it shrink, and at last holds nothing else.
func (r *ring) next(now time.Time) time.Time {
	if r.full() {
		return now
	}
	return r.last
}
