package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

// leader returns who holds the lease of a cluster's syncers, "" when nobody does.
func (w *world) leader(t *testing.T, cluster string) string {
	t.Helper()
	namespace := names.SyncerNamespace(names.InstanceID(w.compute, w.target(t, cluster).UID))
	lease, err := w.clusters[cluster].kube.CoordinationV1().Leases(namespace).Get(t.Context(), names.Lease, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// otherLeader waits until another than before holds the lease.
func (w *world) otherLeader(t *testing.T, cluster, before string) string {
	t.Helper()
	var now string
	eventually(t, time.Minute, "another syncer of "+cluster+" leads", func() (bool, string) {
		now = w.leader(t, cluster)
		return now != "" && now != before, now
	})
	return now
}

// secondSyncer starts another replica of a cluster's syncer, with a link of its own.
func (w *world) secondSyncer(t *testing.T, cluster string) (*process, *link) {
	t.Helper()
	c := w.clusters[cluster]
	l := newLink(t, w.f, secondLinkPort, serverAddress)
	kubeconfig, err := os.ReadFile(filepath.Join(w.dir, cluster+".upstream"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.dir, cluster+"-2.upstream")
	if err := os.WriteFile(file, bytes.ReplaceAll(kubeconfig, []byte(c.link.address), []byte(l.address)), 0o600); err != nil {
		t.Fatal(err)
	}
	second := &process{name: c.syncer.name + "-2", log: filepath.Join(w.dir, c.syncer.name+"-2.log")}
	second.command = func(ctx context.Context) *exec.Cmd {
		cmd := c.syncer.command(ctx)
		for i, arg := range cmd.Args {
			if arg == filepath.Join(w.dir, cluster+".upstream") {
				cmd.Args[i] = file
			}
		}
		return cmd
	}
	second.start(t)
	t.Cleanup(func() {
		second.kill()
		if t.Failed() {
			t.Log(second.tail())
		}
	})
	second.says(t, "Elected", 1)
	return second, l
}

// scale sets the replicas of an application, waits until its copy has been told, and
// returns the generation of the copy's Deployment before and after.
func (w *world) scale(t *testing.T, cluster string, a app, replicas int32) (before, after int64) {
	t.Helper()
	kube, err := w.clients.Kube(w.shop)
	if err != nil {
		t.Fatal(err)
	}
	copies := w.copiesOf(t, w.clusters[cluster], a.namespace)
	if len(copies) != 1 {
		t.Fatalf("%s has copies %q of %s", cluster, copies, a.namespace)
	}
	down := w.clusters[cluster].kube.AppsV1().Deployments(copies[0])
	d, err := down.Get(t.Context(), "demo", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before = d.Generation
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if _, err := kube.AppsV1().Deployments(a.namespace).Patch(t.Context(), "demo", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, fmt.Sprintf("the copy has %d replicas", replicas), func() (bool, string) {
		d, err := down.Get(t.Context(), "demo", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		after = d.Generation
		return *d.Spec.Replicas == replicas, fmt.Sprint(*d.Spec.Replicas)
	})
	return before, after
}

// Two syncers run for one cluster. When the active one is killed the other goes on. When
// it is frozen the other goes on too, and what the first believes when it thaws, cut off
// from the control plane, it does not act on: it neither changes back what has changed nor
// makes again what has gone.
func testTwoReplicas(t *testing.T, w *world, shop app) {
	from, to := w.sides(t, shop)
	c := w.clusters[from]
	// It will go while the first is frozen.
	leaving := app{namespace: "leaving", drainSeconds: 1}
	w.patch(t, to, map[string]any{"unschedulable": true})
	w.deploy(t, leaving)
	w.patch(t, to, map[string]any{"unschedulable": nil})
	first := w.leader(t, from)
	second, link := w.secondSyncer(t, from)
	if now := w.leader(t, from); now != first {
		t.Errorf("a second replica took the lease: %s has it, before %s", now, first)
	}
	before := w.uidsOf(t, from, shop, leaving)

	c.syncer.kill()
	if was, is := w.scale(t, from, shop, 3); is != was+1 {
		t.Errorf("one change was applied %d times", is-was)
	}
	active := w.otherLeader(t, from, first)
	w.kept(t, from, before)
	c.syncer.start(t)

	second.signal(syscall.SIGSTOP)
	link.set(true)
	w.undeploy(t, leaving)
	w.otherLeader(t, from, active)
	was, is := w.scale(t, from, shop, 2)
	if is != was+1 {
		t.Errorf("one change was applied %d times", is-was)
	}
	eventually(t, settleLimit, "the copy has gone", func() (bool, string) {
		left := w.copiesOf(t, c, leaving.namespace)
		return len(left) == 0, fmt.Sprint(left)
	})
	namespaces, err := c.kube.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{LabelSelector: names.SyncerLabel, ResourceVersion: w.now(t, c)})
	if err != nil {
		t.Fatal(err)
	}
	made := make(chan []string, 1)
	go func() {
		var out []string
		for e := range namespaces.ResultChan() {
			if ns, ok := e.Object.(*corev1.Namespace); ok && e.Type == watch.Added {
				out = append(out, ns.Name)
			}
		}
		made <- out
	}()
	kept := w.uidsOf(t, from, shop)
	second.signal(syscall.SIGCONT)
	second.says(t, "Not leading", 1)
	// Longer than an election holds on to a lease that it has lost.
	pause(t, 8*time.Second)
	w.kept(t, from, kept)
	if _, now := w.scale(t, from, shop, 2); now != is {
		t.Errorf("the copy's Deployment was written %d times by a syncer that was frozen", now-is)
	}
	namespaces.Stop()
	if got := <-made; len(got) > 0 {
		t.Errorf("a syncer that was frozen made namespaces %q", got)
	}
	w.noFailures(t)
}

// now returns a resource version of a cluster from which to watch.
func (w *world) now(t *testing.T, c *cluster) string {
	t.Helper()
	list, err := c.kube.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.ResourceVersion
}

// says waits until a process has logged a message so many times.
func (p *process) says(t *testing.T, message string, times int) {
	t.Helper()
	eventually(t, time.Minute, fmt.Sprintf("%s says %q", p.name, message), func() (bool, string) {
		data, err := os.ReadFile(p.log)
		if err != nil {
			return false, err.Error()
		}
		return strings.Count(string(data), message) >= times, p.tail()
	})
}
