package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// everyStage is an application that can be held in every stage of a handover, by what the
// stage waits for.
var everyStage = app{namespace: "stages", drainSeconds: 1, nodePort: 30081, podLabel: "test/stages-pods", extraLabel: "test/stages-extra"}

// holdFinalizer holds up the removal of a copy's pods.
const holdFinalizer = "test.kcp.io/hold"

// crash kills one part of the product and starts it again; it returns when that part is at
// work again.
type crash struct {
	part string
	do   func(t *testing.T, w *world, from, to string)
}

var crashes = []crash{
	{"server", func(t *testing.T, w *world, _, _ string) {
		w.server.restart(t)
		w.serverReady(t)
	}},
	{"syncer of the source", func(t *testing.T, w *world, from, _ string) { w.restartSyncer(t, from) }},
	{"syncer of the target", func(t *testing.T, w *world, _, to string) { w.restartSyncer(t, to) }},
	{"gateway", func(t *testing.T, w *world, _, _ string) {
		g := w.gateways[0]
		g.restart(t)
		eventually(t, time.Minute, g.name+" serves", func() (bool, string) {
			answer, err := w.prober.get(t.Context(), g.address, everyStage.host(), "/hello")
			return err == nil, fmt.Sprint(answer, err)
		})
	}},
}

// restartSyncer kills a cluster's only syncer, starts it again, and waits until it has
// taken the lease over from the one that was killed.
func (w *world) restartSyncer(t *testing.T, cluster string) {
	t.Helper()
	before := w.leader(t, cluster)
	w.clusters[cluster].syncer.restart(t)
	w.otherLeader(t, cluster, before)
}

// handoverStage is a stage that is held, and what lets the handover go on to the next.
type handoverStage struct {
	name string
	next func()
}

// One handover for each part of the product: it is held in every stage in turn, and in
// each the part is killed and started again. The handover goes on waiting for what holds
// it, and only for that; nothing that had arrived, and nothing that still serves, is
// deleted or made anew, and no client notices.
func testKillAtEveryStage(t *testing.T, w *world, shop app) {
	from, to := w.sides(t, shop)
	w.patch(t, to, map[string]any{"unschedulable": true})
	w.label(t, from, true, everyStage.podLabel, everyStage.extraLabel)
	w.deploy(t, everyStage)
	w.patch(t, to, map[string]any{"unschedulable": nil})
	for _, c := range crashes {
		if !t.Run(c.part, func(t *testing.T) { w.crashAtEveryStage(t, c, shop) }) {
			t.FailNow()
		}
	}
	w.undeploy(t, everyStage)
}

func (w *world) crashAtEveryStage(t *testing.T, c crash, shop app) {
	from, to := w.sides(t, everyStage)
	a := everyStage
	w.label(t, to, false, a.podLabel, a.extraLabel)
	freePort := w.takePort(t, to, a)
	// Through the gateway that lives on.
	stream := w.prober.socket(t, w.gateways[1].address, a.host())
	source := w.uidsOf(t, from, a)
	w.drain(t, from)
	for _, stage := range []handoverStage{
		{"Applying", freePort},
		{"WaitingForPods", func() { w.label(t, to, true, a.podLabel) }},
		{"WaitingForGateway", func() { w.label(t, to, true, a.extraLabel) }},
		{"Draining", func() { w.finalizePods(t, from, a, true); stream.close() }},
		{"Removing", func() { w.finalizePods(t, from, a, false) }},
	} {
		w.inStage(t, from, a, stage.name)
		arrived := w.uidsOf(t, to, a)
		c.do(t, w, from, to)
		w.inStage(t, from, a, stage.name)
		w.kept(t, to, arrived)
		if stage.name != "Removing" {
			w.kept(t, from, source)
			if err := stream.echo(); err != nil {
				t.Errorf("%s: the stream broke: %v", stage.name, err)
			}
		}
		w.noFailures(t)
		if t.Failed() {
			t.Fatalf("in stage %s", stage.name)
		}
		stage.next()
	}
	arrived := w.uidsOf(t, to, a)
	w.settles(t, settleLimit, to, a, shop)
	w.kept(t, to, arrived)
	w.noFailures(t)
	w.uncordon(t, from)
}

// inStage waits until the move of an application off a cluster is in a stage.
func (w *world) inStage(t *testing.T, from string, a app, stage string) {
	t.Helper()
	eventually(t, settleLimit, a.namespace+" is in stage "+stage, func() (bool, string) {
		got := w.stages(t, from)[a.namespace]
		return got == stage, got
	})
}

// takePort takes an application's node port on a cluster, and returns what frees it.
func (w *world) takePort(t *testing.T, cluster string, a app) (free func()) {
	t.Helper()
	services := w.clusters[cluster].kube.CoreV1().Services(metav1.NamespaceDefault)
	taken := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "takes-the-port-of-" + a.namespace},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: int32(a.nodePort)}}},
	}
	if _, err := services.Create(t.Context(), taken, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := services.Delete(t.Context(), taken.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// label gives a cluster's node the labels that an application wants, or takes them.
func (w *world) label(t *testing.T, cluster string, on bool, labels ...string) {
	t.Helper()
	values := map[string]any{}
	for _, label := range labels {
		values[label] = nil
		if on {
			values[label] = "yes"
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": values}})
	if err != nil {
		t.Fatal(err)
	}
	c := w.clusters[cluster]
	if _, err := c.kube.CoreV1().Nodes().Patch(t.Context(), c.NodeName(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// finalizePods puts a finalizer on the pods of an application's copy, so that they stay
// when they are deleted, or takes it away.
func (w *world) finalizePods(t *testing.T, cluster string, a app, on bool) {
	t.Helper()
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	if on {
		patch = fmt.Appendf(nil, `{"metadata":{"finalizers":[%q]}}`, holdFinalizer)
	}
	c := w.clusters[cluster]
	for _, ns := range w.copiesOf(t, c, a.namespace) {
		pods, err := c.kube.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods.Items {
			if _, err := c.kube.CoreV1().Pods(ns).Patch(t.Context(), pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
