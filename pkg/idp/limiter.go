package idp

import (
	"hash/maphash"
	"sync"
	"time"
)

const (
	// Guesses in a row before a name has to wait, and how long for each further one.
	limiterBurst = 5
	limiterEvery = 10 * time.Second
	// Names share this many buckets, so that guessed names cost no memory and a name
	// that does not exist behaves like one that does.
	limiterBuckets = 4096
)

// limiter slows down guessing: each user name has a bucket of attempts that refills
// with time, and a right password fills it again.
type limiter struct {
	now  func() time.Time
	seed maphash.Seed

	mu      sync.Mutex
	buckets [limiterBuckets]bucket
}

type bucket struct {
	// used attempts, which decay by one per limiterEvery.
	used float64
	last time.Time
}

func newLimiter(now func() time.Time) *limiter {
	return &limiter{now: now, seed: maphash.MakeSeed()}
}

func (l *limiter) bucket(name string) *bucket {
	return &l.buckets[maphash.String(l.seed, name)%limiterBuckets]
}

// take reports whether name may make an attempt now, and counts it.
func (l *limiter) take(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, now := l.bucket(name), l.now()
	b.used = max(0, b.used-now.Sub(b.last).Seconds()/limiterEvery.Seconds())
	b.last = now
	if b.used > limiterBurst-1 {
		return false
	}
	b.used++
	return true
}

// reset forgets the attempts of name.
func (l *limiter) reset(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bucket(name).used = 0
}
