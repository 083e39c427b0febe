package syncer

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/13eedeaf/kcp/pkg/version"
)

const refusal = `The syncer (version "v0.0.1", sync protocol 0) is older than this server (version "v1", sync protocol 1) supports`

// hang is when a test gives up on a syncer that does not end.
const hang = 2 * time.Minute

// ends waits for a syncer that is not told to end, and returns why it did.
func (w *world) ends(meanwhile func()) error {
	w.t.Helper()
	s, err := New(&Config{Upstream: w.up, Downstream: w.syncer, identity: w.id, leaderElect: true, holder: string(uuid.NewUUID())})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), hang)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	meanwhile()
	return <-done
}

// TestLesson28VersionSkew: a syncer that does not fit the server ends and says why, and
// leaves what runs; one that fits goes on from there.
func TestLesson28VersionSkew(t *testing.T) {
	w := deployed(t)
	w.stop()
	uid := w.downstreamNamespace().GetUID()
	refuse := func(message string) {
		w.vw.mu.Lock()
		defer w.vw.mu.Unlock()
		w.vw.refusal = message
	}
	stays := func() {
		t.Helper()
		if ns := w.downstreamNamespace(); ns == nil || ns.GetUID() != uid || ns.GetDeletionTimestamp() != nil {
			t.Errorf("the copy does not stay: %v", ns)
		}
	}

	refuse(refusal)
	if err := w.ends(func() {}); err == nil || err.Error() != "the server refuses this syncer: "+refusal {
		t.Errorf("refused at the start: %v", err)
	}
	stays()

	refuse("")
	before := w.vw.requested("PATCH synctargets")
	err := w.ends(func() {
		w.eventually("a heartbeat", func() bool { return w.vw.requested("PATCH synctargets") > before })
		refuse(refusal)
	})
	if err == nil || err.Error() != "the server refuses this syncer: "+refusal {
		t.Errorf("refused while it works, as after an update of the server: %v", err)
	}
	stays()

	refuse("")
	w.vw.mu.Lock()
	w.vw.peer = version.Peer{}
	w.vw.mu.Unlock()
	if err := w.ends(func() {}); err == nil || !strings.HasPrefix(err.Error(), `The server (version "unknown", sync protocol 0) is older than this syncer`) {
		t.Errorf("a server that knows nothing of versions: %v", err)
	}
	stays()

	w.vw.mu.Lock()
	w.vw.peer = version.Peer{Build: "v9", Protocol: version.SyncProtocol + 1}
	before = w.vw.requests["PATCH synctargets"]
	w.vw.mu.Unlock()
	w.start()
	w.eventually("a newer server that does not refuse is worked with", func() bool { return w.vw.requested("PATCH synctargets") > before })
	stays()
}
