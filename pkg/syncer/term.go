package syncer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// errNotLeading is what a write gets that this replica may not make any more.
var errNotLeading = errors.New("this replica does not hold the lease, another may be at work")

// term is this replica's hold on the lease. It stands between the leader election and the
// lease, and in front of every write.
//
// Leader election alone ends a term late: a process that was frozen goes on, when it
// thaws, with what it believed before, for as long as the election tries to renew. By then
// the other replica has been at work, and what this one believes is old. So each write
// asks whether the last renewal is recent enough for nobody else to lead yet, by a clock
// that runs while the process does not.
type term struct {
	resourcelock.Interface
	clock clock.PassiveClock

	mu sync.Mutex
	// renewed is when the renewal began that succeeded last, zero while the lease is not
	// this replica's.
	renewed time.Time
	// over, when set, ends the work of the term.
	over func()
}

// Get implements resourcelock.Interface. A lease that somebody else holds ends the term.
func (t *term) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := t.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != t.Identity() {
		t.end()
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (t *term) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.hold(ctx, record, t.Interface.Create)
}

// Update implements resourcelock.Interface.
func (t *term) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.hold(ctx, record, t.Interface.Update)
}

func (t *term) hold(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	began := t.clock.Now()
	if record.HolderIdentity != t.Identity() {
		// It is given back.
		t.end()
	}
	if err := write(ctx, record); err != nil {
		return err
	}
	if record.HolderIdentity == t.Identity() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.renewed = began
	}
	return nil
}

// begin sets what ends the work of a term that has just been won.
func (t *term) begin(over func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = over
	if t.renewed.IsZero() {
		over()
	}
}

func (t *term) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewed = time.Time{}
	if t.over != nil {
		t.over()
	}
}

// holds reports whether nobody else can lead yet. What is left of the lease is for the
// write that asks.
func (t *term) holds() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.renewed.IsZero() && t.clock.Since(t.renewed) < renewDeadline
}

// guard refuses writes outside of a term.
func (t *term) guard(next http.RoundTripper) http.RoundTripper { return &guarded{t, next} }

type guarded struct {
	term *term
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g *guarded) RoundTrip(req *http.Request) (*http.Response, error) {
	reads := req.Method == http.MethodGet || req.Method == http.MethodHead || req.Method == http.MethodOptions
	if reads || g.term.holds() {
		return g.next.RoundTrip(req)
	}
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, fmt.Errorf("cannot %s %q: %w", req.Method, req.URL.Path, errNotLeading)
}

// WrappedRoundTripper lets what looks for a transport's settings find them.
func (g *guarded) WrappedRoundTripper() http.RoundTripper { return g.next }
