package proxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/13eedeaf/kcp/pkg/gateway/proxy"
	"github.com/13eedeaf/kcp/pkg/gateway/table"
)

func TestShiftWithoutFailures(t *testing.T) {
	a, b := newApp(t, "a"), newApp(t, "b")
	g := newGateway(t)
	g.serve(active("ta", a.address()))
	p := g.ping(4)
	p.more(t, 100)
	if n := b.requests.Load(); n != 0 {
		t.Errorf("100/0: b got %d requests", n)
	}

	g.serve(active("ta", a.address()), active("tb", b.address()))
	g.awaitProbes()
	before, beforeB := p.ok.Load(), b.requests.Load()
	p.more(t, 2000)
	share := float64(b.requests.Load()-beforeB) / float64(p.ok.Load()-before)
	if share < 0.4 || share > 0.6 {
		t.Errorf("50/50: b got a share of %.2f", share)
	}

	g.serve(draining("ta", a.address()), active("tb", b.address()))
	g.await("the end of what is in flight to a", func(s proxy.Status) bool { return !s.Targets[0].Accepting && s.Targets[0].InFlight == 0 })
	gone := a.requests.Load()
	p.more(t, 200)
	if n := a.requests.Load() - gone; n != 0 {
		t.Errorf("0/100: a got %d requests after its in-flight count was zero", n)
	}
	a.kill()
	g.serve(active("tb", b.address()))
	p.more(t, 100)
	p.end(t)
}

func TestTargetsShareByEndpoints(t *testing.T) {
	a, b, c := newApp(t, "a"), newApp(t, "b"), newApp(t, "c")
	g := newGateway(t)
	g.serve(active("ta", a.address()), active("tb", b.address(), c.address()))
	g.awaitProbes()
	p := g.ping(4)
	p.more(t, 3000)
	p.end(t)
	share := float64(a.requests.Load()) / float64(p.ok.Load())
	if share < 0.25 || share > 0.42 {
		t.Errorf("a, with 1 of 3 endpoints, got a share of %.2f", share)
	}
}

func TestKilledBackend(t *testing.T) {
	a, b := newApp(t, "a"), newApp(t, "b")
	// No probe notices in time: retries alone have to do.
	g := newGateway(t, func(o *proxy.Options) { o.ProbeInterval = time.Hour })
	g.serve(active("ta", a.address(), b.address()))
	g.awaitProbes()
	p := g.ping(8)
	p.more(t, 500)
	a.kill()
	p.more(t, 500)
	p.end(t)
}

// TestDrainedCountIsFinal: once a table says draining and the count is zero, not one
// more request may arrive.
func TestDrainedCountIsFinal(t *testing.T) {
	a, b := newApp(t, "a"), newApp(t, "b")
	g := newGateway(t)
	g.serve(active("ta", a.address()), active("tb", b.address()))
	p := g.ping(8)
	for round := range 50 {
		g.serve(active("ta", a.address()), active("tb", b.address()))
		g.awaitProbes()
		p.more(t, 20)
		g.serve(draining("ta", a.address()), active("tb", b.address()))
		g.await("zero in flight", func(s proxy.Status) bool { return s.Targets[0].InFlight == 0 })
		n := a.requests.Load()
		p.more(t, 50)
		if more := a.requests.Load() - n; more != 0 {
			t.Fatalf("round %d: %d requests came after the count was zero", round, more)
		}
	}
	p.end(t)
}

func TestDrainingHoldsWebSocket(t *testing.T) {
	a, b := newApp(t, "a"), newApp(t, "b")
	g := newGateway(t)
	g.serve(active("ta", a.address()))
	g.awaitProbes()
	conn := g.dialUpgrade()
	g.serve(draining("ta", a.address()), active("tb", b.address()))
	s := g.awaitProbes()
	want := []proxy.TargetStatus{
		{Target: "ta", Generation: 1, Draining: true, Accepting: false, Endpoints: 1, Backends: 1, HealthyBackends: 1, InFlight: 1},
		{Target: "tb", Generation: 1, Accepting: true, Endpoints: 1, Backends: 1, HealthyBackends: 1},
	}
	if diff := cmp.Diff(want, s.Targets); diff != "" {
		t.Errorf("status with a stream held (-want +got):\n%s", diff)
	}
	for range 20 {
		if code, body := g.request(http.MethodGet, "/", ""); code != http.StatusOK || !strings.HasPrefix(body, "b") {
			t.Fatalf("a new request while a drains: %d %q, want it at b", code, body)
		}
	}
	// The stream lives on, through further tables too.
	g.serve(active("tb", b.address()))
	if _, err := io.WriteString(conn, "still here"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, len("still here"))
	if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != "still here" {
		t.Fatalf("the held stream answered %q, %v", buf, err)
	}
	g.serve(draining("ta", a.address()), active("tb", b.address()))
	if n := g.await("the stream's count", func(s proxy.Status) bool { return s.Answered }).Targets[0].InFlight; n != 1 {
		t.Errorf("in flight after the target left the table and came back: %d, want 1", n)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	g.await("the end of the stream", func(s proxy.Status) bool { return s.Targets[0].InFlight == 0 })
	if n := g.InFlight(); n != 0 {
		t.Errorf("open requests: %d, want 0", n)
	}
}

func TestLastResorts(t *testing.T) {
	a, b := newApp(t, "a"), newApp(t, "b")
	dead := deadAddress(t)
	tests := map[string]struct {
		parts         []part
		want          string
		wantAccepting []bool
	}{
		"draining gets nothing while active can serve": {
			parts: []part{active("ta", a.address()), draining("tb", b.address())},
			want:  "a ", wantAccepting: []bool{true, false},
		},
		"draining serves when active has no endpoint": {
			parts: []part{active("ta"), draining("tb", b.address())},
			want:  "b ", wantAccepting: []bool{true, true},
		},
		"draining serves when active is dead": {
			parts: []part{active("ta", dead), draining("tb", b.address())},
			want:  "b ", wantAccepting: []bool{true, true},
		},
		"draining serves when active is not ready": {
			parts: []part{active("ta", a.address()).in(table.NotReady), draining("tb", b.address())},
			want:  "b ", wantAccepting: []bool{true, true},
		},
		"what terminates gets nothing while draining can serve": {
			parts: []part{active("ta", a.address()).in(table.Terminating), draining("tb", b.address())},
			want:  "b ", wantAccepting: []bool{true, true},
		},
		"what terminates serves at last, active first": {
			parts: []part{active("ta", a.address()).in(table.Terminating), draining("tb", b.address()).in(table.Terminating)},
			want:  "a ", wantAccepting: []bool{true, false},
		},
		"draining and terminating serves when nothing else does": {
			parts: []part{active("ta", dead).in(table.Terminating), draining("tb", b.address()).in(table.Terminating)},
			want:  "b ", wantAccepting: []bool{true, true},
		},
		"never what is not ready": {
			parts: []part{active("ta", a.address()).in(table.NotReady)},
			want:  "no healthy endpoint\n", wantAccepting: []bool{true},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			g.serve(tc.parts...)
			s := g.awaitProbes()
			for range 10 {
				if _, body := g.request(http.MethodGet, "/", ""); body != tc.want {
					t.Fatalf("got %q, want %q", body, tc.want)
				}
			}
			if n := g.metric("kcp_gateway_retries_total"); n != 0 {
				t.Errorf("%v retries: the right endpoint was not the first choice", n)
			}
			var accepting []bool
			for _, target := range s.Targets {
				accepting = append(accepting, target.Accepting)
			}
			if diff := cmp.Diff(tc.wantAccepting, accepting); diff != "" {
				t.Errorf("accepting (-want +got):\n%s", diff)
			}
		})
	}
}

// deadAddress returns an address at which nothing listens.
func deadAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func TestStatusCountsProbesOfThisRevision(t *testing.T) {
	a := newApp(t, "a")
	// Only the probes that a new table asks for.
	g := newGateway(t, func(o *proxy.Options) { o.ProbeInterval = time.Hour })
	g.serve(active("ta", a.address()))
	first := g.awaitProbes()
	if got := first.Targets[0].HealthyBackends; got != 1 {
		t.Fatalf("healthy backends: %d, want 1", got)
	}
	a.kill()
	g.serve(active("ta", a.address()), active("tb"))
	s := g.awaitProbes()
	if s.Revision <= first.Revision {
		t.Errorf("revision %d after %d", s.Revision, first.Revision)
	}
	want := []proxy.TargetStatus{
		{Target: "ta", Generation: 1, Accepting: true, Endpoints: 1, Backends: 1},
		{Target: "tb", Generation: 1, Accepting: true, Backends: 1},
	}
	if diff := cmp.Diff(want, s.Targets); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// TestOldProbesDoNotConfirm: what answered before a table came into force says nothing
// of that table.
func TestOldProbesDoNotConfirm(t *testing.T) {
	a := newApp(t, "a")
	g := newGateway(t, func(o *proxy.Options) { o.ProbeInterval = time.Hour })
	early := 0
	for range 200 {
		g.serve(active("ta", a.address()), active("tb"))
		s, _ := g.Status(shop)
		if !s.Answered {
			early++
			if n := s.Targets[0].HealthyBackends; n != 0 {
				t.Fatalf("healthy backends before any probe of this table: %d", n)
			}
		}
		g.awaitProbes()
		g.serve(active("ta", a.address()))
		g.awaitProbes()
	}
	if early == 0 {
		t.Error("never looked before the probes answered: the test shows nothing")
	}
}

func TestEndpointRecovers(t *testing.T) {
	a := newApp(t, "a")
	g := newGateway(t)
	g.serve(active("ta", a.address()))
	g.awaitProbes()
	a.kill()
	g.await("the probe to fail", func(s proxy.Status) bool { return s.Targets[0].HealthyBackends == 0 })
	l, err := net.Listen("tcp", a.address())
	if err != nil {
		t.Skipf("the port was taken meanwhile: %v", err)
	}
	again := httptest.NewUnstartedServer(a.Config.Handler)
	_ = again.Listener.Close()
	again.Listener = l
	again.Start()
	t.Cleanup(again.Close)
	g.await("the probe to succeed", func(s proxy.Status) bool { return s.Targets[0].HealthyBackends == 1 })
	if code, body := g.request(http.MethodGet, "/", ""); code != http.StatusOK {
		t.Errorf("after recovery: %d %q", code, body)
	}
}

func TestErrors(t *testing.T) {
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(release) })
	rude := rawServer(t, func(int) (string, bool) { return "", false })
	garbage := rawServer(t, func(int) (string, bool) { return "no HTTP\r\n\r\n", false })

	tests := map[string]struct {
		parts    []part
		host     string
		wantCode int
		wantBody string
	}{
		"no route":             {parts: []part{active("ta")}, host: "other.example.com", wantCode: 404, wantBody: "no route for this host and path\n"},
		"no endpoint":          {parts: []part{active("ta")}, host: host, wantCode: 503, wantBody: "no healthy endpoint\n"},
		"none reachable":       {parts: []part{active("ta", deadAddress(t))}, host: host, wantCode: 503, wantBody: "no healthy endpoint\n"},
		"connection cut":       {parts: []part{active("ta", rude.address)}, host: host, wantCode: 502, wantBody: "the application did not answer properly\n"},
		"not an HTTP answer":   {parts: []part{active("ta", garbage.address)}, host: host, wantCode: 502, wantBody: "the application did not answer properly\n"},
		"no answer in time":    {parts: []part{active("ta", slow.Listener.Addr().String())}, host: host, wantCode: 504, wantBody: "the application did not answer in time\n"},
		"no table in force":    {host: host, wantCode: 503, wantBody: "no healthy endpoint\n"},
		"host of no workspace": {parts: []part{active("ta")}, host: "", wantCode: 404, wantBody: "no route for this host and path\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, func(o *proxy.Options) { o.ResponseTimeout = 100 * time.Millisecond })
			if tc.parts != nil {
				g.serve(tc.parts...)
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://gateway/", nil)
			r.Host = tc.host
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			if w.Code != tc.wantCode || w.Body.String() != tc.wantBody {
				t.Errorf("got %d %q, want %d %q", w.Code, w.Body, tc.wantCode, tc.wantBody)
			}
		})
	}
}

func TestRequestArrivesAsSent(t *testing.T) {
	type seen struct {
		Method, Host, URI, For, Proto, ForwardedHost, Secret, Body string
	}
	b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_ = json.NewEncoder(w).Encode(seen{
			r.Method, r.Host, r.RequestURI, r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Forwarded-Proto"),
			r.Header.Get("X-Forwarded-Host"), r.Header.Get("Forwarded"), string(body),
		})
	}))
	t.Cleanup(b.Close)
	g := newGateway(t)
	g.serve(active("ta", b.Listener.Addr().String()))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/a%2Fb/../c?x=1;2&y=%zz", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	r.Header.Set("X-Forwarded-For", "192.0.2.1")
	r.Header.Set("X-Forwarded-Proto", "https")
	r.Header.Set("Forwarded", "for=192.0.2.1")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var got seen
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := seen{"POST", host, "/a%2Fb/../c?x=1;2&y=%zz", "127.0.0.1", "http", host, "", "body"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request at the application (-want +got):\n%s", diff)
	}
}

func TestStreamedAnswersAreFlushed(t *testing.T) {
	next := make(chan struct{})
	b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "%d\n", i)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	}))
	t.Cleanup(b.Close)
	g := newGateway(t)
	g.serve(active("ta", b.Listener.Addr().String()))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	for i := range 3 {
		line := make([]byte, 2)
		if _, err := io.ReadFull(resp.Body, line); err != nil || string(line) != fmt.Sprintf("%d\n", i) {
			t.Fatalf("event %d: got %q, %v", i, line, err)
		}
		next <- struct{}{}
	}
}
