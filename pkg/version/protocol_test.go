package version

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPeerOf(t *testing.T) {
	for name, tc := range map[string]struct {
		protocol, build string
		want            Peer
		wantErr         string
	}{
		"both":            {"7", "v1.2.3", Peer{"v1.2.3", 7}, ""},
		"nothing":         {"", "", Peer{}, ""},
		"no number":       {"seven", "v1", Peer{}, `header Kcp-Sync-Protocol: "seven" is no number of a sync protocol`},
		"negative":        {"-1", "v1", Peer{}, `"-1" is no number`},
		"out of range":    {"99999999999", "v1", Peer{}, `"99999999999" is no number`},
		"a version's end": {"1", strings.Repeat("v", 100), Peer{strings.Repeat("v", 64), 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			h.Set(ProtocolHeader, tc.protocol)
			h.Set(BuildHeader, tc.build)
			got, err := PeerOf(h)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("error %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("peer (-want +got):\n%s", diff)
			}
		})
	}
	h := http.Header{}
	Self().Tell(h)
	if got, err := PeerOf(h); err != nil || got != Self() {
		t.Errorf("what this build tells reads %+v, %v; want %+v", got, err, Self())
	}
}

func TestRefuse(t *testing.T) {
	has := func(got string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%q lacks %q", got, w)
			}
		}
	}
	for p := OldestSyncProtocol; p <= SyncProtocol; p++ {
		if got := RefuseSyncer(Peer{"v1", p}, "east"); got != "" {
			t.Errorf("a syncer with protocol %d: %s", p, got)
		}
	}
	own := `(version "` + version + `", sync protocol 1)`
	has(RefuseSyncer(Peer{"v0.0.1", OldestSyncProtocol - 1}, "east"), `The syncer (version "v0.0.1", sync protocol 0) is older than this server `+own, "kubectl kcp workload sync east", "goes on running")
	has(RefuseSyncer(Peer{}, "east"), `version "unknown", sync protocol 0`)
	has(RefuseSyncer(Peer{"v9", SyncProtocol + 1}, "east"), `The syncer (version "v9", sync protocol 2) is newer than this server `+own, "update the server first", "goes on running")
	for _, p := range []int{SyncProtocol, SyncProtocol + 5} {
		if got := RefuseServer(Peer{"v9", p}); got != "" {
			t.Errorf("a server with protocol %d: %s", p, got)
		}
	}
	has(RefuseServer(Peer{}), `The server (version "unknown", sync protocol 0) is older than this syncer `+own, "update the server first")
}
