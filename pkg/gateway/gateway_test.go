package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/gateway/table"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

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

	f.remove("assignments", makeAssignment("twest", schedulingv1alpha1.AssignmentActive, 1))
	awaitReport(t, f) // nothing but the Ingress is left
	f.remove("ingresses", makeIngress())
	eventually(t, "the report of a namespace without anything to go", func() bool { _, ok := f.report(shopPlace); return !ok })
}

// hold keeps requests open until there is one at east; it reports how many are there.
type holding struct {
	east    int64
	cancels []context.CancelFunc
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
	f.put("hostclaims", makeClaim(other, true))
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

// TestHostOfAnotherTenant: two gateways serve what the server says, whichever Ingress they
// meet first, and follow when it changes its word; so they do after a restart.
func TestHostOfAnotherTenant(t *testing.T) {
	f, east := newFakeServer(t), newBackend(t, "east")
	deploy(t, f, east)
	// Older than the holder's: age is the server's business.
	foreign := makeIngress()
	foreign.Annotations = map[string]string{logicalcluster.AnnotationKey: "ws0"}
	foreign.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name = "none"
	foreign.CreationTimestamp.Time = time.Unix(0, 0)
	f.put("hostclaims", makeClaim(foreign, false))
	f.put("ingresses", foreign)
	dir := t.TempDir()
	first, second := start(t, f), start(t, f, func(o *Options) { o.Name, o.StateDir = "gw2", dir })
	first.hello("east")
	second.hello("east")

	// Taken away: 404, since nobody holds it; given to the other: 503, as it runs nowhere.
	gives := func(code int) {
		t.Helper()
		for name, g := range map[string]*running{"first": first, "second": second} {
			eventually(t, fmt.Sprintf("%d of the %s gateway", code, name), func() bool {
				got, _ := g.get("/hello")
				return got == code
			})
		}
	}
	f.put("hostclaims", makeClaim(makeIngress(), false))
	gives(http.StatusNotFound)
	f.put("hostclaims", makeClaim(foreign, true))
	gives(http.StatusServiceUnavailable)
	second.end()
	f.away("*")
	second = start(t, f, func(o *Options) { o.Name, o.StateDir = "gw2", dir })
	gives(http.StatusServiceUnavailable)
	f.put("hostclaims", makeClaim(foreign, false))
	f.put("hostclaims", makeClaim(makeIngress(), true))
	f.back("*")
	first.hello("east")
	second.hello("east")
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
