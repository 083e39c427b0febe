package virtual

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/tunnel"
	"github.com/13eedeaf/kcp/pkg/version"
)

// telling is a transport that tells what its syncer is.
type telling struct{ peer version.Peer }

func (t telling) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	t.peer.Tell(r.Header)
	return http.DefaultTransport.RoundTrip(r)
}

// openTunnel opens the tunnel below a base as its syncer does.
func (w *world) openTunnel(base string) error {
	l, err := tunnel.Open(w.t.Context(), telling{w.peer}, w.server.URL+base+"/tunnel")
	if err == nil {
		w.t.Cleanup(func() { _ = l.Close() })
	}
	return err
}

func (w *world) connected(of target) bool {
	return w.handler.config.Tunnels.Check(of.key, "tenant") == nil
}

func TestTunnel(t *testing.T) {
	w := newWorld(t)
	east, west := w.register("east"), w.register("west")
	if err := w.openTunnel(east.base); err != nil {
		t.Fatal(err)
	}
	w.eventually("east is connected", func() bool { return w.connected(east) })
	if w.connected(west) {
		t.Error("west is connected by east's tunnel")
	}
	w.remove("synctargets", obj("SyncTarget", "compute", "", "east"))
	w.eventually("the tunnel ends with its SyncTarget", func() bool { return !w.connected(east) })
}

// Rights are asked for at the start and at each use.
func TestTunnelRights(t *testing.T) {
	w := newWorld(t)
	east := w.register("east")
	asked := ""
	w.allow = func(cluster logicalcluster.Name, a authorizer.Attributes) bool {
		asked = string(cluster) + " " + a.GetVerb() + " " + a.GetResource() + " " + a.GetName()
		return true
	}
	if err := w.openTunnel(east.base); err != nil {
		t.Fatal(err)
	}
	if want := "compute sync synctargets east"; asked != want {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	w.eventually("east is connected", func() bool { return w.connected(east) })
	w.allow = func(logicalcluster.Name, authorizer.Attributes) bool { return false }
	if err := w.handler.config.Tunnels.Check(east.key, "tenant"); !errors.Is(err, tunnel.ErrNotConnected) {
		t.Errorf("after the right was taken away: %v, want %v", err, tunnel.ErrNotConnected)
	}
	if err := w.openTunnel(east.base); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a tunnel without the right: %v, want 403", err)
	}
}

func TestTunnelRefused(t *testing.T) {
	w := newWorld(t)
	east := w.register("east")
	base := east.base[:strings.LastIndex(east.base, "/")]
	if err := w.openTunnel(base + "/another-uid"); err == nil || !strings.Contains(err.Error(), "410") {
		t.Errorf("with another uid: %v, want 410", err)
	}
	if code, _ := w.do("GET", east.base+"/tunnel", "", ""); code != http.StatusBadRequest {
		t.Errorf("GET that does not upgrade: %d, want 400", code)
	}
	if code, _ := w.do("POST", east.base+"/tunnel", jsonType, "{}"); code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d, want 405", code)
	}
}

// TestLongRunning: only streams and tunnels are spared time-outs and fairness, and nobody
// is spared them by asking.
func TestLongRunning(t *testing.T) {
	const base = "/services/syncer/compute/east/uid"
	for request, want := range map[string]bool{
		"GET " + base + "/tunnel":                                                         true,
		"GET " + base + "/clusters/*/api/v1/configmaps?watch=true":                        true,
		"GET " + base + "/clusters/*/api/v1/configmaps?watch=1":                           true,
		"GET /services/gateway/clusters/*/apis/networking.k8s.io/v1/ingresses?watch=true": true,
		"GET " + base + "/clusters/*/api/v1/configmaps":                                   false,
		"GET " + base + "/clusters/*/api/v1/configmaps?watch=false":                       false,
		"GET " + base + "/clusters/c/api/v1/namespaces/n/configmaps/tunnel":               false,
		"POST " + base + "/tunnel":                                                        false,
		"POST " + base + "/clusters/c/api/v1/namespaces/n/events?watch=true":              false,
		"GET /services/gateway/tunnel":                                                    false,
		"GET /services/locations/apis/scheduling.kcp.io/v1alpha1/locations?watch=true":    false,
		"GET /services/home?watch=true":                                                   false,
		"POST /services/home?watch=true":                                                  false,
		"GET /services/drain/compute/east?watch=true":                                     false,
		"GET /services/gateways/x?watch=true":                                             false,
		"GET /clusters/x/tunnel":                                                          false,
	} {
		method, url, _ := strings.Cut(request, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := LongRunning(r); got != want {
			t.Errorf("%s: long-running is %v, want %v", request, got, want)
		}
	}
}
