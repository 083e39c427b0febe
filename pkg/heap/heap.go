// Package heap paces garbage collection in processes that are small most of the time.
//
// Go's own pace is a percentage of what lives: a small heap is collected all the time, a
// large one may double. Here the room between two collections has a lower limit as well,
// so that a small heap is left alone and a large one needs not be given as much.
package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// Pace is how much may be allocated between two collections.
type Pace struct {
	// AtLeast is in bytes; Percent is of what lives. The greater one counts.
	AtLeast uint64
	Percent int
}

// maxPercent bounds what a heap of nearly nothing may grow by.
const maxPercent = 1000

// Keep sets the pace of this process from now on, unless the environment variable GOGC
// says otherwise.
func Keep(p Pace) {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(p.Percent)
	watch(p, p.Percent)
}

// watch adapts the percentage after each collection.
func watch(p Pace, now int) {
	// The object is garbage at once, so that each collection finds one.
	runtime.AddCleanup(new([16]byte), func(before int) {
		after := p.percentOf(live())
		if after != before {
			debug.SetGCPercent(after)
		}
		watch(p, after)
	}, now)
}

// live is what the last collection has left, in bytes.
func live() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}

// percentOf returns the percentage to set for so many bytes that live.
func (p Pace) percentOf(live uint64) int {
	// In steps of ten, since setting it stops the world for a moment.
	percent := p.AtLeast * 100 / max(live, 1) / 10 * 10
	return max(p.Percent, int(min(percent, maxPercent)))
}
