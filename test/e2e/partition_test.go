package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A syncer that is cut off while a namespace moves holds the move up, on either side,
// and nothing else happens. When it is heard again the move goes on.
func testSyncerCutOff(t *testing.T, w *world, shop app) {
	from, to := w.sides(t, shop)
	source := w.uidsOf(t, from, shop)
	w.clusters[to].link.set(true)
	w.drain(t, from)
	eventually(t, 10*time.Second, "the move waits for the new side", func() (bool, string) {
		stage := w.stages(t, from)[shop.namespace]
		return stage == "Applying", stage
	})
	pause(t, 3*time.Second)
	if got := w.stages(t, from)[shop.namespace]; got != "Applying" {
		t.Errorf("the move went on to stage %q", got)
	}
	w.kept(t, from, source)
	// Now the new side is heard, and the old one is not.
	w.clusters[from].link.set(true)
	w.clusters[to].link.set(false)
	eventually(t, time.Minute, "the move waits for the old side", func() (bool, string) {
		stage := w.stages(t, from)[shop.namespace]
		return stage == "Removing", stage
	})
	arrived := w.uidsOf(t, to, shop)
	pause(t, 3*time.Second)
	w.kept(t, from, source)
	w.clusters[from].link.set(false)
	w.settles(t, settleLimit, to, shop)
	w.kept(t, to, arrived)
	w.noFailures(t)
	w.uncordon(t, from)
}

// A stream that is open when its application moves is not cut before the deadline, and
// the old side does not wait for it any longer.
func testStreamUntilDeadline(t *testing.T, w *world, shop app) {
	from, to := w.sides(t, shop)
	const deadline = 8 * time.Second
	w.placement(t, map[string]any{"drainDeadline": deadline.String()})
	stream := w.prober.socket(t, w.gateways[0].address, shop.host())
	w.drain(t, from)
	var until time.Time
	eventually(t, time.Minute, "the deadline is set", func() (bool, string) {
		all, err := w.assignments(t.Context(), shop.namespace)
		if old := all[from]; old != nil && old.Spec.DrainDeadline != nil {
			until = old.Spec.DrainDeadline.Time
		}
		return !until.IsZero(), fmt.Sprint(err)
	})
	if left := time.Until(until); left < deadline-3*time.Second || left > deadline {
		t.Errorf("the deadline is in %s, want about %s after the switch", left, deadline)
	}
	for time.Now().Before(until) {
		if err := stream.echo(); err != nil {
			t.Fatalf("the stream broke %s before its deadline: %v", time.Until(until), err)
		}
		if got := w.where(t, shop.namespace); got != fmt.Sprintf("%s=Draining %s=Serving", from, to) && got != fmt.Sprintf("%s=Serving %s=Draining", to, from) && time.Now().Before(until) {
			t.Fatalf("%s before the deadline the namespace is at %s", time.Until(until), got)
		}
		pause(t, 100*time.Millisecond)
	}
	eventually(t, time.Minute, "the stream ends", func() (bool, string) { return stream.echo() != nil, "it goes on" })
	w.settles(t, settleLimit, to, shop)
	w.noFailures(t)
	w.uncordon(t, from)
	w.placement(t, map[string]any{"drainDeadline": nil})
}

// With etcd standing still nothing can be written or decided, and nothing that runs
// notices. That no heartbeat could be written for longer than silence is tolerated is not
// the syncers' silence: nothing moves when etcd is back.
func testEtcdStopped(t *testing.T, w *world, shop app) {
	from, _ := w.sides(t, shop)
	w.placement(t, map[string]any{"unreachableToleration": toleration.String()})
	before := w.uidsOf(t, from, shop)
	w.etcd.signal(syscall.SIGSTOP)
	pause(t, time.Minute)
	w.kept(t, from, before)
	w.etcd.signal(syscall.SIGCONT)
	for name := range w.clusters {
		w.ready(t, name)
	}
	w.settles(t, settleLimit, from, shop)
	w.kept(t, from, before)
	w.noFailures(t)
	w.placement(t, map[string]any{"unreachableToleration": nil})
}

// An etcd that is killed and started again while a namespace moves loses nothing: the move
// is completed, and the server needs no restart.
func testEtcdKilled(t *testing.T, w *world, shop app) {
	from, to := w.sides(t, shop)
	w.drain(t, from)
	eventually(t, time.Minute, "the move has begun", func() (bool, string) {
		got := w.where(t, shop.namespace)
		return strings.Contains(got, to+"="), got
	})
	w.etcd.kill()
	pause(t, 3*time.Second)
	w.etcd.start(t)
	w.settles(t, settleLimit, to, shop)
	arrived := w.uidsOf(t, to, shop)
	w.uncordon(t, from)
	for name := range w.clusters {
		w.ready(t, name)
	}
	w.kept(t, to, arrived)
	w.noFailures(t)
	if w.server.hasEnded() {
		t.Error("the server has ended")
	}
}

// A gateway that is cut off holds a move up until its lease and the grace after it have
// ended; then the move goes on with the gateway that is heard. Up to then clients of
// either notice nothing, and afterwards those of the one that is heard. When the other
// is heard again it serves the new place.
func testGatewayCutOff(t *testing.T, w *world, shop app) {
	from, to := w.sides(t, shop)
	lost := w.gateways[1]
	began := time.Now()
	lost.link.set(true)
	w.drain(t, from)
	eventually(t, 30*time.Second, "the move waits for the gateway", func() (bool, string) {
		stage := w.stages(t, from)[shop.namespace]
		return stage == "WaitingForGateway", stage
	})
	for time.Since(began) < 20*time.Second {
		if got := w.stages(t, from)[shop.namespace]; got != "WaitingForGateway" {
			t.Fatalf("%s after the gateway was lost the move is in stage %q", time.Since(began), got)
		}
		pause(t, time.Second)
	}
	w.noFailures(t)
	// Clients leave a gateway that is known to be cut off.
	w.prober.use(w.gateways[0].address)
	eventually(t, time.Minute, "the move goes on", func() (bool, string) {
		got := w.where(t, shop.namespace)
		return got == to+"=Serving", got
	})
	if took := time.Since(began); took < 40*time.Second {
		t.Errorf("the move did not wait for the lease and its grace: %s", took)
	}
	w.settles(t, settleLimit, to, shop)
	lost.link.set(false)
	eventually(t, 30*time.Second, lost.name+" serves the new place", func() (bool, string) {
		answer, err := w.prober.get(t.Context(), lost.address, shop.host(), "/hello")
		return err == nil, fmt.Sprint(answer, err)
	})
	w.prober.use(gatewayAddresses...)
	w.noFailures(t)
	w.uncordon(t, from)
}

// toleration is what the Placement says in the tests below. A syncer counts as silent
// after 30 s only, so that is what a failover waits for.
const toleration = 20 * time.Second

// A cluster whose syncer is cut off is left after the toleration, not before, and serves
// until then: no client notices anything. When it returns its copy is removed, and nothing
// of the new one is touched.
func testHeartbeatLost(t *testing.T, w *world, shop app) {
	from, to := w.sides(t, shop)
	w.placement(t, map[string]any{"unreachableToleration": toleration.String()})
	before := w.uidsOf(t, from, shop)
	cut := time.Now()
	w.clusters[from].link.set(true)
	heard := w.target(t, from).Status.LastHeartbeatTime.Time
	for time.Since(heard) < toleration {
		if got := w.where(t, shop.namespace); got != from+"=Serving" && time.Since(heard) < toleration {
			t.Fatalf("%s after the last heartbeat the namespace is at %s", time.Since(heard), got)
		}
		pause(t, 500*time.Millisecond)
	}
	eventually(t, time.Minute, "the application was started elsewhere", func() (bool, string) {
		got := w.where(t, shop.namespace)
		return got == fmt.Sprintf("%s=Removing %s=Serving", from, to) || got == fmt.Sprintf("%s=Serving %s=Removing", to, from), got
	})
	t.Logf("failed over %s after the cut", time.Since(cut).Round(time.Second))
	// The old copy runs on: nobody can have told its cluster.
	w.kept(t, from, before)
	arrived := w.uidsOf(t, to, shop)
	w.noFailures(t)

	w.clusters[from].link.set(false)
	w.settles(t, settleLimit, to, shop)
	w.kept(t, to, arrived)
	w.noFailures(t)
	w.ready(t, from)
}

// A SyncTarget that is deleted is drained first.
func testDeleteTarget(t *testing.T, w *world, shop app) {
	from, to := w.sides(t, shop)
	w.deleteTarget(t, from)
	eventually(t, settleLimit, "the application has moved", func() (bool, string) {
		got := w.where(t, shop.namespace)
		return got == to+"=Serving", got
	})
	w.targetGone(t, 30*time.Second, from)
	w.settles(t, settleLimit, to, shop)
	w.noFailures(t)
	w.clusters[from].syncer.stop(syscall.SIGTERM)
	w.register(t, from)
	w.ready(t, from)
}

func (w *world) deleteTarget(t *testing.T, name string) {
	t.Helper()
	if err := w.clients.SyncTargets(w.compute).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A cluster loses power. The application is started elsewhere after the toleration;
// clients fail in between only. Its SyncTarget can be deleted although nobody answers.
// When the cluster comes back its syncer removes what it had made, and nothing else.
func testClusterLost(t *testing.T, w *world, shop app) {
	from, to := w.sides(t, shop)
	c := w.clusters[from]
	foreign, err := c.kube.CoreV1().Namespaces().Create(t.Context(), foreignNamespace(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.noFailures(t)
	lost := time.Now()
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 90*time.Second, "the application was started elsewhere", func() (bool, string) {
		answer, err := w.prober.get(t.Context(), gatewayAddresses[0], shop.host(), "/hello")
		return err == nil, fmt.Sprint(answer, err)
	})
	back := time.Now()
	t.Logf("failed over %s after the loss", back.Sub(lost).Round(time.Second))
	if excused := w.failuresWithin(t, lost.Add(-time.Second), back.Add(2*time.Second)); excused == 0 {
		t.Error("no client noticed that a cluster lost power: it was not in use")
	}
	arrived := w.uidsOf(t, to, shop)

	w.deleteTarget(t, from)
	w.targetGone(t, time.Minute, from)
	eventually(t, 10*time.Second, "the application runs elsewhere", func() (bool, string) {
		got := w.where(t, shop.namespace)
		return got == to+"=Serving", got
	})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, settleLimit, "the syncer has cleaned up", func() (bool, string) {
		left := w.copiesOf(t, c, shop.namespace)
		return len(left) == 0, fmt.Sprint(left)
	})
	if ns, err := c.kube.CoreV1().Namespaces().Get(t.Context(), foreign.Name, metav1.GetOptions{}); err != nil || ns.UID != foreign.UID || ns.DeletionTimestamp != nil {
		t.Errorf("a namespace that is not the syncer's was deleted: %v", err)
	}
	w.kept(t, to, arrived)
	w.noFailures(t)
}
