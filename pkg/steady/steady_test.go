package steady

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// TestAgeSurvivesAClockThatIsSet: whatever the wall clock does, an age is what has passed.
func TestAgeSurvivesAClockThatIsSet(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	wall, real := clocktesting.NewFakePassiveClock(start), clocktesting.NewFakePassiveClock(start)
	signs := &Signs[string]{Clock: Clock{Wall: wall, Steady: real}}
	began := signs.Clock.Ago(0)
	signs.Saw("a", 0)
	signs.Saw("b", -time.Minute)
	for _, step := range []struct {
		what          string
		passes, jumps time.Duration
		// wantAge is the age of a by the wall clock; wantStill that its instant reads as at
		// first.
		wantAge   time.Duration
		wantStill bool
	}{
		{"at once", 0, 0, 0, true},
		{"time passes", 10 * time.Second, 0, 10 * time.Second, true},
		{"the clock drifts", 0, 300 * time.Millisecond, 10*time.Second + 300*time.Millisecond, true},
		{"it jumps forward", 0, time.Hour, 10 * time.Second, false},
		{"time passes again", 10 * time.Second, 0, 20 * time.Second, false},
		{"it jumps far back", 0, -48 * time.Hour, 20 * time.Second, false},
	} {
		real.SetTime(real.Now().Add(step.passes))
		wall.SetTime(wall.Now().Add(step.passes + step.jumps))
		now := wall.Now()
		a, ok := signs.Last("a", now)
		if !ok || now.Sub(a) != step.wantAge || a.Equal(start) != step.wantStill {
			t.Errorf("%s: a was at %s, %s ago; want %s ago", step.what, a, now.Sub(a), step.wantAge)
		}
		if got := signs.Clock.WasSet(began); got == step.wantStill {
			t.Errorf("%s: the clock was set: %t", step.what, got)
		}
		b, _ := signs.Last("b", now)
		if got := b.Sub(a); got != time.Minute {
			t.Errorf("%s: b comes %s after a, want 1m", step.what, got)
		}
	}
	signs.Forget("a")
	if _, ok := signs.Last("a", wall.Now()); ok {
		t.Error("a forgotten key is known")
	}
}
