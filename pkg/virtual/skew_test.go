package virtual

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/13eedeaf/kcp/pkg/version"
)

// TestLesson28VersionSkew: a syncer that the server cannot work with is refused whatever it
// asks for, is told why, and changes nothing but what its SyncTarget says of it.
func TestLesson28VersionSkew(t *testing.T) {
	const own = "/apis/workload.kcp.io/v1alpha1/synctargets/east"
	for name, tc := range map[string]struct {
		peer        version.Peer
		wantMessage string
	}{
		"older": {version.Peer{Build: "v0.0.1", Protocol: version.OldestSyncProtocol - 1}, `The syncer (version "v0.0.1", sync protocol 0) is older than this server`},
		"newer": {version.Peer{Build: "v9.0.0", Protocol: version.SyncProtocol + 1}, `The syncer (version "v9.0.0", sync protocol 2) is newer than this server`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			east := w.register("east")
			w.put("assignments", assignment("c1", "ns", east))
			w.peer = tc.peer
			for _, r := range []struct{ method, path, contentType string }{
				{"GET", own, ""},
				{"PATCH", own + "/status", merge},
				{"GET", "/clusters/*/api/v1/configmaps", ""},
				{"GET", "/clusters/*/api/v1/configmaps" + start, ""},
				{"POST", "/clusters/c1/apis/workload.kcp.io/v1alpha1/namespaces/ns/syncreports", jsonType},
				{"GET", "/apis", ""},
				{"GET", "/version", ""},
				{"GET", "/tunnel", ""},
			} {
				code, status := w.do(r.method, east.base+r.path, r.contentType, `{"status":{"syncerVersion":"v1"}}`)
				message, _ := status["message"].(string)
				if code != http.StatusBadRequest || !strings.HasPrefix(message, tc.wantMessage) || !strings.Contains(fmt.Sprint(status["details"]), "VersionSkew") {
					t.Errorf("%s %s: %d %v, want 400 %s", r.method, r.path, code, status, tc.wantMessage)
				}
			}
			if err := w.openTunnel(east.base); err == nil || !strings.Contains(err.Error(), tc.wantMessage) {
				t.Errorf("a tunnel: %v, want %s", err, tc.wantMessage)
			}
			uid := east.base[strings.LastIndex(east.base, "/")+1:]
			want := recorded{Cluster: "compute", Method: "PATCH", Path: own + "/status", ContentType: merge, User: "system:apiserver", Body: map[string]any{
				"metadata": map[string]any{"uid": uid},
				"status":   map[string]any{"syncerVersion": tc.peer.Build, "syncProtocol": float64(tc.peer.Protocol)},
			}}
			writes := w.recordedWrites()
			if len(writes) == 0 {
				t.Fatal("nothing was noted on the SyncTarget")
			}
			for _, got := range writes {
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("written (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestVersionNoted(t *testing.T) {
	bad := version.Peer{Build: "v0", Protocol: version.OldestSyncProtocol - 1}
	status := func(build string, protocol int64, age time.Duration) map[string]any {
		return map[string]any{"syncerVersion": build, "syncProtocol": protocol, "lastSyncerHeartbeatTime": time.Now().Add(-age).UTC().Format(time.RFC3339), "namespaces": int64(0)}
	}
	for name, tc := range map[string]struct {
		status map[string]any
		want   bool
	}{
		"nothing is known":            {map[string]any{"namespaces": int64(0)}, true},
		"it is known":                 {status("v0", 0, time.Hour), false},
		"another of the kind":         {status("v1", 0, 0), true},
		"a good one is at work":       {status("v1", version.SyncProtocol, 0), false},
		"a good one has fallen quiet": {status("v1", version.SyncProtocol, time.Hour), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			east := w.register("east")
			uid := east.base[strings.LastIndex(east.base, "/")+1:]
			w.put("synctargets", obj("SyncTarget", "compute", "", "east", field(uid, "metadata", "uid"), field(tc.status, "status")))
			w.peer = bad
			if code, _ := w.do("GET", east.base+"/version", "", ""); code != http.StatusBadRequest {
				t.Fatalf("%d, want 400", code)
			}
			if got := len(w.recordedWrites()) > 0; got != tc.want {
				t.Errorf("noted: %v, want %v", got, tc.want)
			}
		})
	}
}

func TestVersionsAreTold(t *testing.T) {
	w := newWorld(t)
	east := w.register("east")
	w.settle()
	get := func(protocol string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.server.URL+east.base+"/apis", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(version.ProtocolHeader, protocol)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp
	}
	for protocol, want := range map[string]int{"1": http.StatusOK, "": http.StatusBadRequest, "one": http.StatusBadRequest} {
		resp := get(protocol)
		if resp.StatusCode != want {
			t.Errorf("protocol %q: %d, want %d", protocol, resp.StatusCode, want)
		}
		if got, err := version.PeerOf(resp.Header); err != nil || got != version.Self() {
			t.Errorf("protocol %q: the server tells %+v, %v; want %+v", protocol, got, err, version.Self())
		}
	}
}
