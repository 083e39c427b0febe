package heap

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestPercentOf(t *testing.T) {
	const mib = 1 << 20
	p := Pace{AtLeast: 10 * mib, Percent: 50}
	cases := map[string]struct {
		live uint64
		want int
	}{
		"Nothing": {0, maxPercent},
		"Tiny":    {mib / 2, maxPercent},
		"Small":   {4 * mib, 250},
		"Steps":   {6 * mib, 160},
		"Equal":   {20 * mib, 50},
		"Large":   {200 * mib, 50},
	}
	for name, tc := range cases {
		if got := p.percentOf(tc.live); got != tc.want {
			t.Errorf("%s: percentOf(%d) = %d, want %d", name, tc.live, got, tc.want)
		}
	}
}

// The pace follows what lives, up and down.
func TestKeep(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	const large = 64 << 20
	Keep(Pace{AtLeast: large, Percent: 50})
	kept := make([]byte, large)
	waitFor(t, "a percentage for a large heap", func(percent int) bool { return percent >= 50 && percent <= 100 })
	runtime.KeepAlive(kept)
	waitFor(t, "a percentage for a small heap", func(percent int) bool { return percent > 500 })
}

func waitFor(t *testing.T, what string, ok func(percent int) bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		runtime.GC()
		// It can only be read by setting it.
		percent := debug.SetGCPercent(100)
		debug.SetGCPercent(percent)
		if ok(percent) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: it is %d after a minute", what, percent)
		}
	}
}
