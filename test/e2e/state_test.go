package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

// target returns the SyncTarget of a cluster.
func (w *world) target(t *testing.T, name string) *workloadv1alpha1.SyncTarget {
	t.Helper()
	var target *workloadv1alpha1.SyncTarget
	eventually(t, 30*time.Second, "SyncTarget "+name+" can be read", func() (bool, string) {
		var err error
		target, err = w.clients.SyncTargets(w.compute).Get(t.Context(), name, metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return target
}

func (w *world) isReady(t *testing.T, name string) bool {
	t.Helper()
	return meta.IsStatusConditionTrue(w.target(t, name).Status.Conditions, workloadv1alpha1.SyncTargetReady)
}

// ready waits until the server hears the syncer of a cluster.
func (w *world) ready(t *testing.T, name string) {
	t.Helper()
	eventually(t, time.Minute, name+" is ready", func() (bool, string) { return w.isReady(t, name), "not ready" })
}

// patch changes the spec of a cluster's SyncTarget.
func (w *world) patch(t *testing.T, name string, spec map[string]any) {
	t.Helper()
	data, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.clients.SyncTargets(w.compute).Patch(t.Context(), name, types.MergePatchType, data, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) drain(t *testing.T, name string) {
	t.Helper()
	w.patch(t, name, map[string]any{"unschedulable": true, "evictAfter": metav1.Now()})
}

func (w *world) uncordon(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		w.patch(t, name, map[string]any{"unschedulable": nil, "evictAfter": nil})
	}
}

// placement changes the spec of the user's Placement.
func (w *world) placement(t *testing.T, spec map[string]any) {
	t.Helper()
	data, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.clients.Placements(w.shop).Patch(t.Context(), schedulingv1alpha1.DefaultPlacementName, types.MergePatchType, data, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// assignments returns those of a namespace by cluster.
func (w *world) assignments(ctx context.Context, namespace string) (map[string]*schedulingv1alpha1.Assignment, error) {
	list, err := w.clients.Assignments(w.shop, namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[string]*schedulingv1alpha1.Assignment{}
	for i := range list.Items {
		name := list.Items[i].Name
		for cluster, c := range w.clusters {
			if c.key == name {
				name = cluster
			}
		}
		out[name] = &list.Items[i]
	}
	return out, nil
}

// where returns the clusters to which a namespace is assigned, and the phase there.
func (w *world) where(t *testing.T, namespace string) string {
	t.Helper()
	var out []string
	eventually(t, 30*time.Second, "the assignments can be read", func() (bool, string) {
		all, err := w.assignments(t.Context(), namespace)
		out = nil
		for _, name := range slices.Sorted(maps.Keys(all)) {
			out = append(out, fmt.Sprintf("%s=%s", name, all[name].Status.Phase))
		}
		return err == nil, fmt.Sprint(err)
	})
	return strings.Join(out, " ")
}

// settles waits until a namespace runs on one cluster alone, by the server's word and in
// the physical clusters.
func (w *world) settles(t *testing.T, limit time.Duration, cluster string, apps ...app) {
	t.Helper()
	for _, a := range apps {
		eventually(t, limit, fmt.Sprintf("%s runs on %s alone", a.namespace, cluster), func() (bool, string) {
			got := w.where(t, a.namespace)
			return got == cluster+"=Serving", got
		})
		for name, c := range w.clusters {
			if copies := w.copiesOf(t, c, a.namespace); (len(copies) > 0) != (name == cluster) {
				t.Errorf("namespace %s is assigned to %s, and %s has copies %q", a.namespace, cluster, name, copies)
			}
		}
	}
}

// sides returns where a namespace runs, and the other cluster.
func (w *world) sides(t *testing.T, a app) (from, to string) {
	t.Helper()
	got := w.where(t, a.namespace)
	for name := range w.clusters {
		if got == name+"=Serving" {
			from = name
			continue
		}
		to = name
	}
	if from == "" {
		t.Fatalf("namespace %s does not run on one cluster alone: %s", a.namespace, got)
	}
	return from, to
}

// copiesOf returns the names of the downstream namespaces of a namespace of the user's.
func (w *world) copiesOf(t *testing.T, c *cluster, namespace string) []string {
	t.Helper()
	list, err := c.kube.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{LabelSelector: names.SyncerLabel})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, ns := range list.Items {
		if w.isCopy(&ns, namespace) {
			out = append(out, ns.Name)
		}
	}
	return out
}

func (w *world) isCopy(ns *corev1.Namespace, namespace string) bool {
	source, err := names.ParseSource(ns.Annotations[names.SourceAnnotation])
	return err == nil && source.Cluster == w.shop && source.Namespace == namespace
}

// observed are the resources that must not be made anew where nothing moves.
var observed = []schema.GroupVersionResource{
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Version: "v1", Resource: "pods"},
	{Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "secrets"},
	{Version: "v1", Resource: "configmaps"},
}

// uids returns everything that a syncer made in a cluster, and what came of it, as
// "resource namespace/name uid". What is being deleted does not count.
func (w *world) uids(t *testing.T, cluster string) map[string]bool {
	t.Helper()
	c := w.clusters[cluster]
	out := map[string]bool{}
	add := func(resource string, o metav1.Object) {
		if o.GetDeletionTimestamp() == nil {
			out[fmt.Sprintf("%s %s/%s %s", resource, o.GetNamespace(), o.GetName(), o.GetUID())] = true
		}
	}
	namespaces, err := c.kube.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{LabelSelector: names.SyncerLabel})
	if err != nil {
		t.Fatal(err)
	}
	for i := range namespaces.Items {
		ns := &namespaces.Items[i]
		add("namespaces", ns)
		for _, gvr := range observed {
			objects, err := c.metadata.Resource(gvr).Namespace(ns.Name).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range objects.Items {
				add(gvr.Resource, &objects.Items[i])
			}
		}
	}
	return out
}

// kept fails the test if anything of before is gone from a cluster or was made anew.
func (w *world) kept(t *testing.T, cluster string, before map[string]bool) {
	t.Helper()
	if len(before) == 0 {
		t.Errorf("nothing was on %s before", cluster)
	}
	after := w.uids(t, cluster)
	for _, object := range slices.Sorted(maps.Keys(before)) {
		if !after[object] {
			t.Errorf("%s was deleted on %s, or made anew", object, cluster)
		}
	}
}

// stages returns how far each namespace of the user's has left a draining cluster.
func (w *world) stages(t *testing.T, cluster string) map[string]string {
	t.Helper()
	out := map[string]string{}
	drain := w.target(t, cluster).Status.Drain
	if drain == nil {
		return out
	}
	for _, n := range drain.Namespaces {
		out[n.Namespace] = n.Stage
	}
	return out
}

// noFailures fails the test if a client saw any failure since the last call, and makes
// sure that clients have been asking.
func (w *world) noFailures(t *testing.T) {
	t.Helper()
	w.failuresWithin(t, time.Time{}, time.Time{})
}

// failuresWithin is noFailures but for requests sent between two instants.
func (w *world) failuresWithin(t *testing.T, from, to time.Time) (excused int) {
	t.Helper()
	before := w.prober.counts()
	eventually(t, 10*time.Second, "the clients go on asking", func() (bool, string) {
		now := w.prober.counts()
		for host, n := range before {
			if now[host] <= n {
				return false, host
			}
		}
		return true, ""
	})
	shown := 0
	for _, f := range w.prober.take() {
		if f.at.After(from) && f.at.Before(to) {
			excused++
			continue
		}
		if shown++; shown <= 10 {
			t.Errorf("a client saw a failure: %s", f)
		}
	}
	if shown > 10 {
		t.Errorf("and %d more failures", shown-10)
	}
	return excused
}

// targetGone waits until a cluster's SyncTarget does not exist any more.
func (w *world) targetGone(t *testing.T, limit time.Duration, name string) {
	t.Helper()
	eventually(t, limit, "SyncTarget "+name+" is gone", func() (bool, string) {
		target, err := w.clients.SyncTargets(w.compute).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err), err.Error()
		}
		return false, fmt.Sprintf("finalizers %q, drain %+v", target.Finalizers, target.Status.Drain)
	})
}

// uidsOf is uids of some applications only.
func (w *world) uidsOf(t *testing.T, cluster string, apps ...app) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	all := w.uids(t, cluster)
	for _, a := range apps {
		for _, ns := range w.copiesOf(t, w.clusters[cluster], a.namespace) {
			for object := range all {
				if strings.Contains(object, " "+ns+"/") || strings.Contains(object, "/"+ns+" ") {
					out[object] = true
				}
			}
		}
	}
	return out
}

// foreignNamespace is one that no syncer made.
func foreignNamespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "of-somebody-else"}}
}
