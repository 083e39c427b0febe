package placement

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// deafAfter is how long nobody at all may be heard before the server doubts its own
// ears. Syncers beat every 10 s. It is well below the silence after which a target is
// not ready, so that the server is never in doubt about itself too late.
const deafAfter = 15 * time.Second

// hearing tells the silence of targets from the server's own deafness. While the server
// does not run, is cut off from its network or cannot write to its etcd, it hears nobody;
// that says nothing about any of the targets, and must not start what runs there
// elsewhere. So when it has heard nobody for a while, silence counts from when it hears
// somebody again.
type hearing struct {
	clock clock.PassiveClock
	// started is when the server was.
	started time.Time

	mu sync.Mutex
	// last is when anybody was last heard; from is when hearing began, after a time
	// without.
	last, from time.Time
}

// heard notes that a target has been heard.
func (h *hearing) heard() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	if now.Sub(h.last) > deafAfter {
		h.from = now
	}
	h.last = now
}

// since is the instant from which silence counts: now, while nobody is heard.
func (h *hearing) since() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	if now.Sub(h.last) > deafAfter {
		return now
	}
	return h.from
}
