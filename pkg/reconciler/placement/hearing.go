package placement

import (
	"sync"
	"time"

	"github.com/13eedeaf/kcp/pkg/steady"
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
	clock steady.Clock
	// started is when the server was.
	started steady.Instant

	mu sync.Mutex
	// last is when anybody was last heard; from is when hearing began, after a time
	// without. Zero is long ago.
	last, from steady.Instant
}

// heard notes that a target has been heard.
func (h *hearing) heard() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Ago(0)
	if h.clock.Age(h.last) > deafAfter {
		h.from = now
	}
	h.last = now
}

// since is the instant from which silence counts, by the wall clock as it shows now: now
// itself, while nobody is heard.
func (h *hearing) since(now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clock.Age(h.last) > deafAfter {
		return now
	}
	return h.clock.At(h.from, now)
}
