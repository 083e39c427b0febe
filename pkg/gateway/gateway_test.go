package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/gateway/table"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

const (
	demoHost  = "demo.example.com"
	shopPlace = "ws1/shop"
)

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: "shop", UID: "uid-1", Generation: 1,
		Annotations: map[string]string{logicalcluster.AnnotationKey: "ws1"},
	}
}

func makeIngress() *networkingv1.Ingress {
	return &networkingv1.Ingress{TypeMeta: bookmarkTypes["ingresses"], ObjectMeta: meta("web"), Spec: networkingv1.IngressSpec{
		Rules: []networkingv1.IngressRule{{Host: demoHost, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: "/hello", PathType: ptr.To(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: "hello", Port: networkingv1.ServiceBackendPort{Number: 80}},
			}}},
		}}}},
	}}
}

func makeService() *corev1.Service {
	return &corev1.Service{TypeMeta: bookmarkTypes["services"], ObjectMeta: meta("hello"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
}

func makeAssignment(target string, state schedulingv1alpha1.AssignmentState, generation int64) *schedulingv1alpha1.Assignment {
	a := &schedulingv1alpha1.Assignment{TypeMeta: bookmarkTypes["assignments"], ObjectMeta: meta(target), Spec: schedulingv1alpha1.AssignmentSpec{Target: target, State: state}}
	a.Generation = generation
	return a
}

// makeSlice returns the mirrored slice of a target, whose one endpoint is the server.
func makeSlice(t *testing.T, target string, server *httptest.Server) *discoveryv1.EndpointSlice {
	t.Helper()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	s := &discoveryv1.EndpointSlice{
		TypeMeta: bookmarkTypes["endpointslices"], ObjectMeta: meta("hello-" + target), AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{host}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(number))}},
	}
	s.Labels = map[string]string{workloadv1alpha1.TargetLabelKey: target, discoveryv1.LabelServiceName: "hello"}
	return s
}

func newBackend(t *testing.T, name string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("hold") {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, name)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// running is a gateway that runs.
type running struct {
	*Gateway

	t    *testing.T
	stop context.CancelFunc
	done chan error
}

func start(t *testing.T, f *fakeServer, mutate ...func(*Options)) *running {
	t.Helper()
	o := NewOptions()
	o.Kubeconfig, o.Listen, o.AdminListen, o.Name, o.StateDir = "unused", "127.0.0.1:0", "127.0.0.1:0", "gw1", ""
	o.Proxy.ProbeInterval = 100 * time.Millisecond
	for _, m := range mutate {
		m(o)
	}
	if err := o.Complete(); err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	g, err := New(&Config{options: *o, restConfig: &rest.Config{Host: f.URL + "/services/gateway"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{Gateway: g, t: t, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- g.Run(ctx) }()
	t.Cleanup(func() { r.end() })
	return r
}

func (r *running) end() {
	r.stop()
	if err, ok := <-r.done; ok {
		close(r.done)
		if err != nil {
			r.t.Errorf("Run: %v", err)
		}
	}
}

// get returns the status and body of a GET at the demo host.
func (r *running) get(path string) (int, string) {
	r.t.Helper()
	return r.getHost(demoHost, path)
}

func (r *running) getHost(host, path string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.Addr().String()+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Host = host
	return do(r.t, req)
}

func (r *running) adminGet(path string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.AdminAddr().String()+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return do(r.t, req)
}

func do(t *testing.T, req *http.Request) (int, string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// hello waits until the demo application answers with the name.
func (r *running) hello(name string) {
	r.t.Helper()
	eventually(r.t, "an answer of "+name, func() bool {
		code, body := r.get("/hello")
		return code == http.StatusOK && body == name
	})
}

// awaitReport waits until the server has that report, revision aside.
func awaitReport(t *testing.T, f *fakeServer, want ...networkingv1alpha1.GatewayTargetReport) networkingv1alpha1.GatewayReportSpec {
	t.Helper()
	var got networkingv1alpha1.GatewayReportSpec
	deadline := time.Now().Add(20 * time.Second)
	for {
		got, _ = f.report(shopPlace)
		diff := cmp.Diff(want, got.Targets, cmpopts.EquateEmpty())
		if diff == "" {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("report (-want +got):\n%s", diff)
		}
		time.Sleep(time.Millisecond)
	}
}

// deploy makes the demo application run on target east.
func deploy(t *testing.T, f *fakeServer, east *httptest.Server) {
	t.Helper()
	f.put("ingresses", makeIngress())
	f.put("services", makeService())
	f.put("assignments", makeAssignment("teast", schedulingv1alpha1.AssignmentActive, 1))
	f.put("endpointslices", makeSlice(t, "teast", east))
}

// TestHandover plays what a drain does, with the reports that it waits for.
func TestHandover(t *testing.T) {
	f, east, west := newFakeServer(t), newBackend(t, "east"), newBackend(t, "west")
	deploy(t, f, east)
	g := start(t, f)
	g.hello("east")
	first := awaitReport(t, f, networkingv1alpha1.GatewayTargetReport{Target: "teast", AssignmentGeneration: 1, Accepting: true, Endpoints: 1, Backends: 1, HealthyBackends: 1})

	f.put("assignments", makeAssignment("twest", schedulingv1alpha1.AssignmentActive, 1))
	awaitReport(t, f,
		networkingv1alpha1.GatewayTargetReport{Target: "teast", AssignmentGeneration: 1, Accepting: true, Endpoints: 1, Backends: 1, HealthyBackends: 1},
		networkingv1alpha1.GatewayTargetReport{Target: "twest", AssignmentGeneration: 1, Accepting: true, Backends: 1})
	f.put("endpointslices", makeSlice(t, "twest", west))
	second := awaitReport(t, f,
		networkingv1alpha1.GatewayTargetReport{Target: "teast", AssignmentGeneration: 1, Accepting: true, Endpoints: 1, Backends: 1, HealthyBackends: 1},
		networkingv1alpha1.GatewayTargetReport{Target: "twest", AssignmentGeneration: 1, Accepting: true, Endpoints: 1, Backends: 1, HealthyBackends: 1})
	if second.TableRevision <= first.TableRevision {
		t.Errorf("revision %d came after %d", second.TableRevision, first.TableRevision)
	}

	held := g.hold("/hello?hold", east, west)
	f.put("assignments", makeAssignment("teast", schedulingv1alpha1.AssignmentDraining, 2))
	west1 := networkingv1alpha1.GatewayTargetReport{Target: "twest", AssignmentGeneration: 1, Accepting: true, Endpoints: 1, Backends: 1, HealthyBackends: 1}
	eastDraining := networkingv1alpha1.GatewayTargetReport{Target: "teast", AssignmentGeneration: 2, Endpoints: 1, Backends: 1, HealthyBackends: 1}
	eventually(t, "the draining report", func() bool {
		r, _ := f.report(shopPlace)
		return len(r.Targets) == 2 && r.Targets[0].AssignmentGeneration == 2 && !r.Targets[0].Accepting && r.Targets[0].InFlight == held.east
	})
	g.hello("west")
	held.release()
	// What is in flight to west is no news.
	eventually(t, "nothing in flight to the east", func() bool {
		r, _ := f.report(shopPlace)
		r.Targets[1].InFlight = 0
		return cmp.Equal(r.Targets, []networkingv1alpha1.GatewayTargetReport{eastDraining, west1})
	})
	east.CloseClientConnections()
	f.remove("assignments", makeAssignment("teast", schedulingv1alpha1.AssignmentDraining, 2))
	awaitReport(t, f, west1)
	for range 20 {
		if code, body := g.get("/hello"); code != http.StatusOK || body != "west" {
			t.Fatalf("after the handover: %d %q", code, body)
		}
	}

	f.remove("ingresses", makeIngress())
	f.remove("assignments", makeAssignment("twest", schedulingv1alpha1.AssignmentActive, 1))
	eventually(t, "the report of a namespace without anything to go", func() bool { _, ok := f.report(shopPlace); return !ok })
}

// hold keeps requests open until there is one at east; it reports how many are there.
type holding struct {
	east    int64
	cancels []context.CancelFunc
	done    chan struct{}
}

func (r *running) hold(path string, east, _ *httptest.Server) *holding {
	r.t.Helper()
	h := &holding{}
	eventually(r.t, "a request held at east", func() bool {
		ctx, cancel := context.WithCancel(r.t.Context())
		h.cancels = append(h.cancels, cancel)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.Addr().String()+path, nil)
		if err != nil {
			r.t.Fatal(err)
		}
		req.Host = demoHost
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { _ = resp.Body.Close() })
		s, _ := r.proxy.Load().Status(table.NamespaceKey{Cluster: "ws1", Namespace: "shop"})
		for _, target := range s.Targets {
			if target.Target == "teast" {
				h.east = target.InFlight
			}
		}
		return h.east > 0
	})
	return h
}

func (h *holding) release() {
	for _, cancel := range h.cancels {
		cancel()
	}
}

func TestInFlightIsNoNewsWhileActive(t *testing.T) {
	f, east := newFakeServer(t), newBackend(t, "east")
	deploy(t, f, east)
	g := start(t, f)
	g.hello("east")
	want := networkingv1alpha1.GatewayTargetReport{Target: "teast", AssignmentGeneration: 1, Accepting: true, Endpoints: 1, Backends: 1, HealthyBackends: 1}
	awaitReport(t, f, want)
	held := g.hold("/hello?hold", east, nil)
	for range 100 {
		g.get("/hello")
	}
	held.release()
	// A change of the namespace passes through the same queue: the report that it makes
	// is the second one.
	f.put("assignments", makeAssignment("teast", schedulingv1alpha1.AssignmentActive, 7))
	want.AssignmentGeneration = 7
	awaitReport(t, f, want)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.history {
		if len(r.Targets) == 1 && r.Targets[0].AssignmentGeneration == 1 && r.Targets[0].InFlight > 0 {
			t.Errorf("a report told of requests in flight to an active target: %+v", r)
		}
	}
}

func TestServerAway(t *testing.T) {
	f, east, west := newFakeServer(t), newBackend(t, "east"), newBackend(t, "west")
	deploy(t, f, east)
	other := makeIngress()
	other.Namespace, other.Spec.Rules[0].Host = "other", "other.example.com"
	f.put("ingresses", other)
	dir := t.TempDir()
	keep := func(o *Options) { o.StateDir = dir }
	g := start(t, f, keep)
	g.hello("east")
	before, _ := f.report(shopPlace)
	eventually(t, "a report", func() bool { before, _ = f.report(shopPlace); return before.TableRevision > 0 })

	f.away("*")
	g.hello("east")
	g.end()

	again := start(t, f, keep)
	if code, _ := again.getHost("other.example.com", "/hello"); code != http.StatusServiceUnavailable {
		t.Errorf("a host without endpoints in the table on disk: %d, want 503", code)
	}
	eventually(t, "readiness", func() bool { code, _ := again.adminGet("/readyz"); return code == http.StatusOK })
	for range 20 {
		if code, body := again.get("/hello"); code != http.StatusOK || body != "east" {
			t.Fatalf("with the table on disk: %d %q", code, body)
		}
	}
	// The application moved meanwhile, and the other Ingress went.
	f.remove("ingresses", other)
	f.put("assignments", makeAssignment("twest", schedulingv1alpha1.AssignmentActive, 1))
	f.put("endpointslices", makeSlice(t, "twest", west))
	f.remove("assignments", makeAssignment("teast", schedulingv1alpha1.AssignmentActive, 1))
	f.remove("endpointslices", makeSlice(t, "teast", east))
	f.back("*")
	again.hello("west")
	if code, _ := again.getHost("other.example.com", "/hello"); code != http.StatusNotFound {
		t.Errorf("the host of an Ingress that went while the server was away: %d, want 404", code)
	}
	after := awaitReport(t, f, networkingv1alpha1.GatewayTargetReport{Target: "twest", AssignmentGeneration: 1, Accepting: true, Endpoints: 1, Backends: 1, HealthyBackends: 1})
	if after.TableRevision <= before.TableRevision {
		t.Errorf("revision %d after the restart, %d before", after.TableRevision, before.TableRevision)
	}
}

// TestStreamsComeBackApart: after an outage the endpoints arrive long before the
// assignments. No request may fail in between.
func TestStreamsComeBackApart(t *testing.T) {
	f, east, west := newFakeServer(t), newBackend(t, "east"), newBackend(t, "west")
	deploy(t, f, east)
	g := start(t, f)
	g.hello("east")
	f.away("assignments", "endpointslices")
	f.put("assignments", makeAssignment("twest", schedulingv1alpha1.AssignmentActive, 1))
	f.put("endpointslices", makeSlice(t, "twest", west))
	f.remove("assignments", makeAssignment("teast", schedulingv1alpha1.AssignmentActive, 1))
	f.remove("endpointslices", makeSlice(t, "teast", east))
	f.back("endpointslices")
	eventually(t, "the endpoints' stream", func() bool {
		_, body := g.adminGet("/metrics")
		return strings.Contains(body, "kcp_gateway_streams_missing 1\n")
	})
	for range 50 {
		if code, body := g.get("/hello"); code != http.StatusOK {
			t.Fatalf("between the streams: %d %q", code, body)
		}
	}
	f.back("assignments")
	g.hello("west")
}

func TestReportsAreRepaired(t *testing.T) {
	f, east := newFakeServer(t), newBackend(t, "east")
	deploy(t, f, east)
	// Left over from before a restart, in a namespace that has nothing any more.
	stale := &networkingv1alpha1.GatewayReport{TypeMeta: bookmarkTypes["gatewayreports"], ObjectMeta: meta("gw1")}
	stale.Namespace = "gone"
	foreign := &networkingv1alpha1.GatewayReport{TypeMeta: bookmarkTypes["gatewayreports"], ObjectMeta: meta("gw2")}
	foreign.Namespace = "other"
	f.put("gatewayreports", stale, foreign)
	f.reports["ws1/gone"], f.reports["ws1/other"] = networkingv1alpha1.GatewayReportSpec{}, networkingv1alpha1.GatewayReportSpec{}
	f.failWrites = 3
	g := start(t, f)
	g.hello("east")
	want := networkingv1alpha1.GatewayTargetReport{Target: "teast", AssignmentGeneration: 1, Accepting: true, Endpoints: 1, Backends: 1, HealthyBackends: 1}
	awaitReport(t, f, want)
	eventually(t, "the stale report to go", func() bool { _, ok := f.report("ws1/gone"); return !ok })
	if _, ok := f.report("ws1/other"); !ok {
		t.Error("another gateway's report was deleted")
	}
	// Somebody deletes the report.
	own := &networkingv1alpha1.GatewayReport{TypeMeta: bookmarkTypes["gatewayreports"], ObjectMeta: meta("gw1")}
	f.put("gatewayreports", own)
	f.mu.Lock()
	delete(f.reports, shopPlace)
	f.mu.Unlock()
	f.remove("gatewayreports", own)
	awaitReport(t, f, want)
}

func TestInstance(t *testing.T) {
	f := newFakeServer(t)
	start(t, f, func(o *Options) { o.Addresses = []string{"192.0.2.1", "gw.example.com"} })
	var got networkingv1alpha1.GatewayInstanceSpec
	eventually(t, "the instance", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		var ok bool
		got, ok = f.instances["gw1"]
		return ok
	})
	want := networkingv1alpha1.GatewayInstanceSpec{Addresses: []string{"192.0.2.1", "gw.example.com"}, LeaseDurationSeconds: 15}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(want, "RenewTime", "Version")); diff != "" {
		t.Errorf("instance (-want +got):\n%s", diff)
	}
	if age := time.Since(got.RenewTime.Time); age < 0 || age > time.Minute {
		t.Errorf("renewed %s ago", age)
	}
}

func TestNothingToServeBeforeTheFirstTable(t *testing.T) {
	f := newFakeServer(t)
	f.away("services")
	g := start(t, f)
	if code, _ := g.adminGet("/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("readyz without a table: %d, want 503", code)
	}
	if code, _ := g.adminGet("/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d, want 200", code)
	}
	if code, _ := g.get("/hello"); code != http.StatusServiceUnavailable {
		t.Errorf("a request without a table: %d, want 503", code)
	}
	f.mu.Lock()
	if len(f.instances) != 0 {
		t.Errorf("a gateway without a table made itself known: %v", f.instances)
	}
	f.mu.Unlock()
	f.back("services")
	eventually(t, "readiness", func() bool { code, _ := g.adminGet("/readyz"); return code == http.StatusOK })
	if code, _ := g.get("/hello"); code != http.StatusNotFound {
		t.Errorf("a request with an empty table: %d, want 404", code)
	}
}

func TestShutdown(t *testing.T) {
	tests := map[string]struct {
		grace   time.Duration
		release bool
	}{
		"waits for the last stream": {grace: time.Minute, release: true},
		"cuts it after the grace":   {grace: 50 * time.Millisecond},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFakeServer(t)
			upgraded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				conn, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					return
				}
				defer func() { _ = conn.Close() }()
				_, _ = fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
				_ = rw.Flush()
				_, _ = io.Copy(conn, rw)
			}))
			t.Cleanup(upgraded.Close)
			deploy(t, f, upgraded)
			g := start(t, f, func(o *Options) { o.ShutdownGrace = tc.grace })
			eventually(t, "the table", func() bool { code, _ := g.adminGet("/readyz"); return code == http.StatusOK })
			conn, err := net.Dial("tcp", g.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := fmt.Fprintf(conn, "GET /hello HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", demoHost); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the stream", func() bool { return g.proxy.Load().InFlight() == 1 })
			g.stop()
			eventually(t, "the end of listening", func() bool {
				probe, err := net.Dial("tcp", g.Addr().String())
				if err == nil {
					_ = probe.Close()
				}
				return err != nil
			})
			if tc.release {
				// The head of the answer is still to be read, the rest is echo.
				reader := bufio.NewReader(conn)
				if _, err := http.ReadResponse(reader, nil); err != nil {
					t.Fatal(err)
				}
				for range 100 {
					if _, err := io.WriteString(conn, "x"); err != nil {
						t.Fatalf("the stream was cut: %v", err)
					}
					if _, err := reader.ReadByte(); err != nil {
						t.Fatalf("the stream was cut: %v", err)
					}
					time.Sleep(time.Millisecond) // the time in which it would be cut
				}
				if err := conn.Close(); err != nil {
					t.Fatal(err)
				}
			}
			g.end()
		})
	}
}
