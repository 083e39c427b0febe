package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
)

// settleLimit is far above what a handover takes.
const settleLimit = 90 * time.Second

// TestFaults breaks each part of the product while an application runs, and while it
// moves. Clients ask for it every 100 ms through two gateways the whole time. Subtests
// begin and end with both clusters registered and the application on one of them, but for
// the last, after which one cluster is not registered any more. Those named after a
// lesson pin what earlier systems got wrong.
func TestFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	shop := app{namespace: "shop", drainSeconds: 3}
	w.deploy(t, shop)
	for _, test := range []struct {
		name string
		run  func(t *testing.T, w *world, shop app)
	}{
		{"Lesson14 ServerAway", testServerAway},
		{"KillAtEveryStage", testKillAtEveryStage},
		{"Lesson10 UncordonAtEveryStage", testUncordonAtEveryStage},
		{"Lesson02 EvictAfterSurvivesRestart", testEvictAfter},
		{"SyncerCutOff", testSyncerCutOff},
		{"Lesson09 StreamUntilDeadline", testStreamUntilDeadline},
		{"Lesson25 TwoReplicas", testTwoReplicas},
		{"EtcdStopped", testEtcdStopped},
		{"EtcdKilled", testEtcdKilled},
		{"GatewayCutOff", testGatewayCutOff},
		{"Lesson13 Lesson16 HeartbeatLost", testHeartbeatLost},
		{"DeleteSyncTarget", testDeleteTarget},
		{"Lesson17 ClusterLost", testClusterLost},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.run(t, w, shop) }) {
			// What follows would only fail as well.
			t.FailNow()
		}
	}
}

// With the server away everything runs on, and when it is back nothing has been deleted.
func testServerAway(t *testing.T, w *world, shop app) {
	from, to := w.sides(t, shop)
	before := w.uids(t, from)
	w.server.stop(syscall.SIGTERM)
	pause(t, 15*time.Second)
	w.kept(t, from, before)
	w.server.start(t)
	w.serverReady(t)
	for name := range w.clusters {
		last := w.target(t, name).Status.LastHeartbeatTime
		eventually(t, 30*time.Second, name+" is heard again", func() (bool, string) {
			now := w.target(t, name).Status.LastHeartbeatTime
			return now.After(last.Time), now.String()
		})
	}
	// Both directions work again.
	patch := []byte(`{"spec":{"replicas":2}}`)
	kube, err := w.clients.Kube(w.shop)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kube.AppsV1().Deployments(shop.namespace).Patch(t.Context(), "demo", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the workspace shows two replicas", func() (bool, string) {
		d, err := kube.AppsV1().Deployments(shop.namespace).Get(t.Context(), "demo", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return d.Status.AvailableReplicas == 2 && d.Status.ObservedGeneration == d.Generation, fmt.Sprintf("%+v", d.Status)
	})
	w.kept(t, from, before)
	if got := w.uids(t, to); len(got) > 0 {
		t.Errorf("the application appeared on %s: %v", to, got)
	}
	w.noFailures(t)
}

// The stages of a handover, each held by something that keeps one namespace there.
var (
	heldApplying = app{namespace: "applying", drainSeconds: 1, nodePort: 30080}
	heldPods     = app{namespace: "pods", drainSeconds: 1, podLabel: "test/pods"}
	heldGateway  = app{namespace: "gateway", drainSeconds: 1, extraLabel: "test/extra"}
	heldDraining = app{namespace: "draining", drainSeconds: 1}
	heldRemoving = app{namespace: "removing", drainSeconds: 15}
	held         = []app{heldApplying, heldPods, heldGateway, heldDraining, heldRemoving}
)

// stagesHeld is what the drain of a cluster shows while all are held.
var stagesHeld = map[string]string{
	"applying": "Applying",
	"pods":     "WaitingForPods",
	"gateway":  "WaitingForGateway",
	"draining": "Draining",
	"removing": "Removing",
}

// hold makes sure that a move to cluster to is held in every stage, and returns what
// lets the namespaces go on.
func (w *world) hold(t *testing.T, from, to string) (release func()) {
	t.Helper()
	labels := []string{heldPods.podLabel, heldGateway.extraLabel}
	w.label(t, from, true, labels...)
	w.label(t, to, false, labels...)
	freePort := w.takePort(t, to, heldApplying)
	return func() {
		w.label(t, to, true, labels...)
		freePort()
	}
}

// drainHeld drains a cluster and waits until there is a namespace in every stage.
func (w *world) drainHeld(t *testing.T, cluster string) {
	t.Helper()
	w.drain(t, cluster)
	eventually(t, settleLimit, "there is a namespace in every stage", func() (bool, string) {
		got := w.stages(t, cluster)
		delete(got, "shop")
		diff := cmp.Diff(stagesHeld, got)
		return diff == "", diff
	})
}

// Uncordon calls off what has not begun to leave, and keeps what has.
func testUncordonAtEveryStage(t *testing.T, w *world, shop app) {
	from, to := w.sides(t, shop)
	w.patch(t, to, map[string]any{"unschedulable": true})
	w.label(t, from, true, heldPods.podLabel, heldGateway.extraLabel)
	w.deploy(t, held...)
	w.patch(t, to, map[string]any{"unschedulable": nil})
	release := w.hold(t, from, to)
	defer release()
	stream := w.prober.socket(t, w.gateways[1].address, heldDraining.host())
	staying := w.uidsOf(t, from, heldApplying, heldPods, heldGateway)
	w.drainHeld(t, from)
	arrived := w.uidsOf(t, to, heldDraining, heldRemoving)
	w.uncordon(t, from)

	w.settles(t, settleLimit, from, heldApplying, heldPods, heldGateway)
	w.kept(t, from, staying)
	if err := stream.echo(); err != nil {
		t.Errorf("the stream broke: %v", err)
	}
	stream.close()
	w.settles(t, settleLimit, to, heldDraining, heldRemoving)
	w.kept(t, to, arrived)
	w.noFailures(t)
	w.undeploy(t, held...)
}

// A future evictAfter moves nothing before its instant, although the server is killed in
// between, and drains then. It implies that nothing new comes.
func testEvictAfter(t *testing.T, w *world, shop app) {
	from, to := w.sides(t, shop)
	before := w.uidsOf(t, from, shop)
	at := metav1.NewTime(time.Now().Add(12 * time.Second).Truncate(time.Second))
	w.patch(t, from, map[string]any{"evictAfter": at})
	w.server.restart(t)
	w.serverReady(t)
	for time.Now().Before(at.Add(-time.Second)) {
		if got := w.where(t, shop.namespace); got != from+"=Serving" && time.Now().Before(at.Time) {
			t.Fatalf("%s before evictAfter the namespace is at %s", time.Until(at.Time), got)
		}
		pause(t, 200*time.Millisecond)
	}
	w.kept(t, from, before)
	eventually(t, 10*time.Second, "the move begins", func() (bool, string) {
		got, err := w.assignments(t.Context(), shop.namespace)
		return got[to] != nil, fmt.Sprint(err)
	})
	if late := time.Since(at.Time); late > 8*time.Second {
		t.Errorf("the move began %s after evictAfter", late)
	}
	w.settles(t, settleLimit, to, shop)
	w.noFailures(t)
	if target := w.target(t, from); target.Spec.Unschedulable || !meta.IsStatusConditionFalse(target.Status.Conditions, workloadv1alpha1.SyncTargetSchedulable) {
		t.Errorf("unschedulable is %t, want false, and the conditions are %v, want %s to be False",
			target.Spec.Unschedulable, target.Status.Conditions, workloadv1alpha1.SyncTargetSchedulable)
	}
	late := app{namespace: "late"}
	w.deploy(t, late)
	if got := w.where(t, late.namespace); got != to+"=Serving" {
		t.Errorf("a new namespace is at %s, want %s", got, to)
	}
	w.undeploy(t, late)
	w.uncordon(t, from)
}
