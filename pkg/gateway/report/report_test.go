package report_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/gateway/proxy"
	"github.com/13eedeaf/kcp/pkg/gateway/report"
	"github.com/13eedeaf/kcp/pkg/gateway/table"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

var shop = table.NamespaceKey{Cluster: "ws1", Namespace: "shop"}

// world is the data plane to report of, and the server to report to.
type world struct {
	mu     sync.Mutex
	status map[table.NamespaceKey]proxy.Status
	calls  []call
	fail   int
}

// call is one write.
type call struct {
	Verb   string
	Object string
	Spec   any
}

func (w *world) Status(key table.NamespaceKey) (proxy.Status, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.status[key]
	return s, ok
}

func (w *world) note(verb, resource string, key logicalcluster.Key, spec any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, call{Verb: verb, Object: resource + " " + key.String(), Spec: spec})
	if w.fail > 0 {
		w.fail--
		return errors.New("the server is away")
	}
	return nil
}

func (w *world) Put(_ context.Context, resource string, key logicalcluster.Key, spec any) error {
	return w.note("put", resource, key, spec)
}

func (w *world) Delete(_ context.Context, resource string, key logicalcluster.Key) error {
	return w.note("delete", resource, key, nil)
}

// take returns the calls since the last take.
func (w *world) take() []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.calls
	w.calls = nil
	return out
}

func (w *world) set(s proxy.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = map[table.NamespaceKey]proxy.Status{shop: s}
}

func status(revision int64, answered bool, targets ...proxy.TargetStatus) proxy.Status {
	return proxy.Status{Revision: revision, Answered: answered, Targets: targets}
}

func spec(revision int64, targets ...networkingv1alpha1.GatewayTargetReport) map[string]any {
	return map[string]any{"tableRevision": revision, "targets": append([]networkingv1alpha1.GatewayTargetReport{}, targets...)}
}

// run starts a reporter in a bubble whose time jumps when all wait.
func run(t *testing.T, w *world, f func(r *report.Reporter)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := report.New(w, w, "gw1")
		var group sync.WaitGroup
		group.Go(func() { r.Run(ctx) })
		f(r)
		cancel()
		group.Wait()
	})
}

// after lets time pass and expects these writes in it.
func (w *world) after(t *testing.T, d time.Duration, want ...call) {
	t.Helper()
	time.Sleep(d) // in a bubble: time jumps
	synctest.Wait()
	if diff := cmp.Diff(want, w.take()); diff != "" {
		t.Errorf("writes in %s (-want +got):\n%s", d, diff)
	}
}

const object = "gatewayreports ws1|shop/gw1"

func TestReporter(t *testing.T) {
	active := proxy.TargetStatus{Target: "t1", Generation: 1, Accepting: true, Endpoints: 2, Backends: 1, HealthyBackends: 1}
	activeReport := networkingv1alpha1.GatewayTargetReport{Target: "t1", AssignmentGeneration: 1, Accepting: true, Endpoints: 2, Backends: 1, HealthyBackends: 1}
	drains := proxy.TargetStatus{Target: "t1", Generation: 2, Draining: true, InFlight: 5}
	drainsReport := networkingv1alpha1.GatewayTargetReport{Target: "t1", AssignmentGeneration: 2, InFlight: 5}

	w := &world{}
	run(t, w, func(r *report.Reporter) {
		w.set(status(1, true, active))
		for range 50 {
			r.Changed(shop)
		}
		w.after(t, 100*time.Millisecond, call{Verb: "put", Object: object, Spec: spec(1, activeReport)})

		busy := active
		busy.InFlight = 7
		w.set(status(1, true, busy))
		r.Changed(shop)
		w.after(t, time.Minute)

		w.set(status(2, true, drains))
		r.Changed(shop)
		w.after(t, 100*time.Millisecond, call{Verb: "put", Object: object, Spec: spec(2, drainsReport)})

		drains.InFlight, drainsReport.InFlight = 0, 0
		w.set(status(2, true, drains))
		r.Changed(shop)
		w.after(t, 200*time.Millisecond, call{Verb: "put", Object: object, Spec: spec(2, drainsReport)})

		r.Lost(shop)
		w.after(t, 100*time.Millisecond, call{Verb: "put", Object: object, Spec: spec(2, drainsReport)})

		w.mu.Lock()
		w.status = nil
		w.mu.Unlock()
		r.Changed(shop)
		w.after(t, 100*time.Millisecond, call{Verb: "delete", Object: object})

		w.set(status(3, true))
		r.Changed(shop)
		w.after(t, 100*time.Millisecond, call{Verb: "put", Object: object, Spec: spec(3)})
	})
}

func TestReporterWaitsForProbes(t *testing.T) {
	unproven := proxy.TargetStatus{Target: "t1", Generation: 1, Accepting: true, Endpoints: 1, Backends: 1}
	proven := unproven
	proven.HealthyBackends = 1
	unprovenReport := networkingv1alpha1.GatewayTargetReport{Target: "t1", AssignmentGeneration: 1, Accepting: true, Endpoints: 1, Backends: 1}
	provenReport := unprovenReport
	provenReport.HealthyBackends = 1

	t.Run("an answer in time makes one write", func(t *testing.T) {
		w := &world{}
		run(t, w, func(r *report.Reporter) {
			w.set(status(1, false, unproven))
			r.Changed(shop)
			w.after(t, 50*time.Millisecond)
			w.set(status(1, true, proven))
			r.Changed(shop)
			w.after(t, time.Minute, call{Verb: "put", Object: object, Spec: spec(1, provenReport)})
		})
	})
	t.Run("silence is reported soon", func(t *testing.T) {
		w := &world{}
		run(t, w, func(r *report.Reporter) {
			w.set(status(1, false, unproven))
			r.Changed(shop)
			w.after(t, 150*time.Millisecond, call{Verb: "put", Object: object, Spec: spec(1, unprovenReport)})
			w.set(status(1, true, proven))
			r.Changed(shop)
			w.after(t, 100*time.Millisecond, call{Verb: "put", Object: object, Spec: spec(1, provenReport)})
		})
	})
}

func TestReporterTriesAgain(t *testing.T) {
	w := &world{fail: 3}
	run(t, w, func(r *report.Reporter) {
		w.set(status(1, true))
		r.Changed(shop)
		put := call{Verb: "put", Object: object, Spec: spec(1)}
		w.after(t, time.Second, put, put, put, put)
		w.after(t, time.Hour)
	})
}

func TestLease(t *testing.T) {
	w := &world{fail: 1}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		lease := &report.Lease{Client: w, Name: "gw1", Addresses: []string{"192.0.2.1"}, Version: "v1"}
		var group sync.WaitGroup
		group.Go(func() { lease.Run(ctx) })
		time.Sleep(12 * time.Second)
		cancel()
		group.Wait()
		var at []time.Duration
		for _, c := range w.take() {
			s, ok := c.Spec.(networkingv1alpha1.GatewayInstanceSpec)
			if !ok || c.Object != "gatewayinstances root|gw1" || s.LeaseDurationSeconds != 15 || s.Version != "v1" {
				t.Errorf("renewal: %+v", c)
			}
			at = append(at, s.RenewTime.Sub(began))
		}
		// The first one failed; from then on every 5 s.
		want := []time.Duration{0, time.Second, 6 * time.Second, 11 * time.Second}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("renewals after (-want +got):\n%s", diff)
		}
	})
}
