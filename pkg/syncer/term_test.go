package syncer

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"
)

// leaseStub is a lease that says who holds it.
type leaseStub struct {
	resourcelock.Interface
	holder string
	err    error
}

func (l *leaseStub) Identity() string { return "me" }

func (l *leaseStub) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: l.holder}, nil, l.err
}

func (l *leaseStub) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	if l.err == nil {
		l.holder = r.HolderIdentity
	}
	return l.err
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestLesson25WritesNeedTheLease: a replica writes while nobody else can lead, and not
// after, whatever its election still believes.
func TestLesson25WritesNeedTheLease(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	lease := &leaseStub{}
	ended := false
	term := &term{Interface: lease, clock: clock}
	renew := func(holder string) {
		_ = term.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: holder})
	}
	transport := term.guard(transportFunc(func(*http.Request) (*http.Response, error) { return &http.Response{}, nil }))
	try := func(method string) error {
		req, err := http.NewRequestWithContext(t.Context(), method, "https://cluster/api", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		_, err = transport.RoundTrip(req)
		return err
	}
	for _, step := range []struct {
		what           string
		do             func()
		leads, wantEnd bool
	}{
		{"never held", func() {}, false, false},
		{"won", func() { renew("me"); term.begin(func() { ended = true }) }, true, false},
		{"just before the deadline", func() { clock.SetTime(clock.Now().Add(renewDeadline - 1)) }, true, false},
		{"not renewed in time, as after a freeze", func() { clock.SetTime(clock.Now().Add(1)) }, false, false},
		{"the renewal fails", func() { lease.err = errors.New("conflict"); renew("me"); lease.err = nil }, false, false},
		{"renewed after all", func() { renew("me") }, true, false},
		{"its own lease is read", func() { _, _, _ = term.Get(t.Context()) }, true, false},
		{"seen in other hands", func() { lease.holder = "other"; _, _, _ = term.Get(t.Context()) }, false, true},
		{"won again", func() { ended = false; renew("me") }, true, false},
		{"given back", func() { renew("") }, false, true},
	} {
		step.do()
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			if err := try(method); (err == nil) != step.leads || err != nil && !errors.Is(err, errNotLeading) {
				t.Errorf("%s: %s gives %v, want it to pass: %t", step.what, method, err, step.leads)
			}
		}
		if err := try(http.MethodGet); err != nil {
			t.Errorf("%s: a read gives %v", step.what, err)
		}
		if ended != step.wantEnd {
			t.Errorf("%s: the work has ended: %t, want %t", step.what, ended, step.wantEnd)
		}
	}
	lost := false
	if term.begin(func() { lost = true }); !lost {
		t.Error("a term that was lost before its work began goes on")
	}
}
