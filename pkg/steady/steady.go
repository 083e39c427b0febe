// Package steady remembers how long ago something happened, whatever becomes of the wall
// clock.
//
// What is stored carries instants of wall clocks: of the server's, of a syncer's, of a
// gateway's. They differ, and any of them may be set while everything runs. An age that
// is the difference of two of them is then wrong by as much, and whoever acts on it takes
// a healthy cluster for dead. So the server notes for itself when it saw something change,
// by a clock that nobody can set, and asks that clock for the age.
//
// Callers go on to think in instants of the wall clock: Clock.At says at which instant of
// it something happened, as the wall clock stands now. An instant that a person chose, as
// evictAfter is, needs none of this: it has come when the wall clock says so.
package steady

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// settling is how far the wall clock may drift before an Instant follows it. Below that an
// Instant reads the same each time, so that it can stand in a message.
const settling = time.Second

// Clock reads both clocks.
type Clock struct {
	// Wall is the clock that may be set.
	Wall clock.PassiveClock
	// Steady measures durations; clock.RealClock does, since Go's instants carry a reading of
	// the monotonic clock.
	Steady clock.PassiveClock
}

// New returns the Clock of a process whose wall clock is given.
func New(wall clock.PassiveClock) Clock { return Clock{Wall: wall, Steady: clock.RealClock{}} }

// Instant is when something happened.
type Instant struct{ wall, steady time.Time }

// Ago returns the instant that is so long ago; a negative duration is still to come.
func (c Clock) Ago(d time.Duration) Instant {
	return Instant{wall: c.Wall.Now().Add(-d), steady: c.Steady.Now().Add(-d)}
}

// Age says how long ago an instant was.
func (c Clock) Age(i Instant) time.Duration { return c.Steady.Since(i.steady) }

// At says when an instant was, as the wall clock stands that shows now.
func (c Clock) At(i Instant, now time.Time) time.Time {
	at := now.Add(-c.Age(i))
	if at.Sub(i.wall).Abs() < settling {
		return i.wall
	}
	return at
}

// WasSet reports whether the wall clock has been set since an instant.
func (c Clock) WasSet(since Instant) bool { return !c.At(since, c.Wall.Now()).Equal(since.wall) }

// Signs remembers an instant for each key. It is safe for concurrent use.
type Signs[K comparable] struct {
	Clock Clock

	mu sync.Mutex
	at map[K]Instant
}

// Saw notes that something happened to key so long ago.
func (s *Signs[K]) Saw(key K, ago time.Duration) {
	i := s.Clock.Ago(ago)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		s.at = map[K]Instant{}
	}
	s.at[key] = i
}

// Last says when something last happened to key, as the wall clock stands that shows now;
// false when nothing is known of it.
func (s *Signs[K]) Last(key K, now time.Time) (time.Time, bool) {
	s.mu.Lock()
	i, ok := s.at[key]
	s.mu.Unlock()
	if !ok {
		return time.Time{}, false
	}
	return s.Clock.At(i, now), true
}

// Forget forgets a key.
func (s *Signs[K]) Forget(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.at, key)
}
