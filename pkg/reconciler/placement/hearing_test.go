package placement

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/13eedeaf/kcp/pkg/steady"
)

func TestHearing(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := clocktesting.NewFakePassiveClock(start)
	h := &hearing{clock: steady.Clock{Wall: clock, Steady: clock}}
	for _, step := range []struct {
		what  string
		at    time.Duration
		heard bool
		want  time.Duration
	}{
		{"nobody has been heard yet", 3 * time.Second, false, 3 * time.Second},
		{"the first is heard", 5 * time.Second, true, 5 * time.Second},
		{"somebody is heard in time", 15 * time.Second, true, 5 * time.Second},
		{"the next is awaited", 29 * time.Second, false, 5 * time.Second},
		{"it is late", 31 * time.Second, false, 31 * time.Second},
		{"still nobody", 10 * time.Minute, false, 10 * time.Minute},
		{"somebody is heard again", 11 * time.Minute, true, 11 * time.Minute},
		{"and again", 11*time.Minute + 10*time.Second, true, 11 * time.Minute},
	} {
		clock.SetTime(start.Add(step.at))
		if step.heard {
			h.heard()
		}
		if got := h.since(clock.Now()).Sub(start); got != step.want {
			t.Errorf("%s, after %s: silence counts from %s, want %s", step.what, step.at, got, step.want)
		}
	}
}

// What the server writes itself, and what it finds at its start, is no sign of life.
func TestFleetHears(t *testing.T) {
	f := newFixture(t)
	since := func() time.Duration { return f.clock.Now().Sub(f.HearingSince(f.clock.Now())) }
	st := target("compute", "us-east1", "us")
	early := metav1.NewTime(f.clock.Now())
	st.Status.LastHeartbeatTime = &early
	f.targets.send(watch.Added, st)
	f.clock.Step(time.Minute)
	st.Spec.Unschedulable = true
	f.targets.send(watch.Modified, st)
	if got := since(); got != 0 {
		t.Errorf("silence counts for %s before anybody was heard", got)
	}
	beat := metav1.NewTime(f.clock.Now())
	st.Status.LastHeartbeatTime = &beat
	f.targets.send(watch.Modified, st)
	f.clock.Step(10 * time.Second)
	if got := since(); got != 10*time.Second {
		t.Errorf("silence counts for %s, want 10s since the heartbeat", got)
	}
}
