package integration

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/test/framework"
)

// TestStorageTraps asks for what a cluster-blind layer below would get wrong.
func TestStorageTraps(t *testing.T) {
	s := framework.Start(t)
	idA, idB := newCluster(t, s, "a"), newCluster(t, s, "b")
	a, b := raw(t, s, idA), raw(t, s, idB)
	all := raw(t, s, logicalcluster.Wildcard)
	for _, name := range []string{"one", "two", "three"} {
		createConfigMap(t, a, name, "a")
		createConfigMap(t, b, name, "b")
	}
	createConfigMap(t, b, "zebra", "b")

	t.Run("a continue token of another cluster", func(t *testing.T) {
		page, err := b.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 1})
		must(t, err)
		tokens := []string{page.Continue}
		everywhere, err := all.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 1})
		must(t, err)
		tokens = append(tokens, everywhere.Continue)
		for _, start := range []string{"../" + string(idB) + "/default/one\x00", "../" + string(idB) + "/", "..", "/../" + string(idB) + "/default/a", "default/one\x00/../../../" + string(idB) + "/default"} {
			token, err := json.Marshal(map[string]any{"v": "meta.k8s.io/v1", "rv": -1, "start": start})
			must(t, err)
			tokens = append(tokens, base64.RawURLEncoding.EncodeToString(token))
		}
		for _, token := range tokens {
			for _, limit := range []int64{0, 2} {
				// An error is as good as a page of one's own.
				list, err := a.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: limit, Continue: token})
				if err != nil {
					continue
				}
				for _, cm := range list.Items {
					if got := logicalcluster.From(&cm); got != idA {
						t.Errorf("token %q shows %s of cluster %s", token, cm.Name, got)
					}
				}
			}
		}
	})

	t.Run("pages", func(t *testing.T) {
		var names []string
		opts := metav1.ListOptions{Limit: 1}
		for {
			page, err := a.CoreV1().ConfigMaps("default").List(t.Context(), opts)
			must(t, err)
			for _, cm := range page.Items {
				if got := logicalcluster.From(&cm); got != idA {
					t.Errorf("a page shows %s of cluster %s", cm.Name, got)
				}
				names = append(names, cm.Name)
			}
			if opts.Continue = page.Continue; opts.Continue == "" {
				break
			}
			if page.RemainingItemCount != nil && *page.RemainingItemCount > 2 {
				t.Errorf("%d items remain: those of other clusters are counted", *page.RemainingItemCount)
			}
		}
		if diff := cmp.Diff([]string{"one", "three", "two"}, names); diff != "" {
			t.Errorf("pages (-want +got):\n%s", diff)
		}
	})

	t.Run("the index's field is no selector", func(t *testing.T) {
		_, err := a.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{FieldSelector: "kcp.io/cluster=" + string(idB)})
		if !apierrors.IsBadRequest(err) {
			t.Errorf("native kind: %v, want BadRequest", err)
		}
		_, err = s.Clients(t).Locations(idA).List(t.Context(), metav1.ListOptions{FieldSelector: "kcp.io/cluster=" + string(idB)})
		if !apierrors.IsBadRequest(err) {
			t.Errorf("own kind: %v, want BadRequest", err)
		}
	})

	t.Run("a wildcard write touches nothing", func(t *testing.T) {
		before, err := all.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		err = all.CoreV1().ConfigMaps("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		if !apierrors.IsBadRequest(err) {
			t.Errorf("deletecollection: %v, want BadRequest", err)
		}
		_, err = all.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
		if err == nil {
			t.Error("create succeeded")
		}
		_, err = all.CoreV1().ConfigMaps("default").Apply(t.Context(), corev1ac.ConfigMap("x", "default"), metav1.ApplyOptions{FieldManager: "test"})
		if err == nil {
			t.Error("apply succeeded")
		}
		list, err := all.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		if len(list.Items) != len(before.Items) || len(list.Items) < 7 {
			t.Errorf("%d objects, want %d", len(list.Items), len(before.Items))
		}
	})

	t.Run("apply keeps to its cluster", func(t *testing.T) {
		apply := func(c kubernetes.Interface, manager, value string, force bool) error {
			_, err := c.CoreV1().ConfigMaps("default").Apply(t.Context(), corev1ac.ConfigMap("applied", "default").WithData(map[string]string{"value": value}), metav1.ApplyOptions{FieldManager: manager, Force: force})
			return err
		}
		must(t, apply(a, "first", "a", false))
		if err := apply(b, "second", "b", false); err != nil {
			t.Errorf("the same name in another cluster: %v", err)
		}
		if err := apply(a, "second", "changed", false); !apierrors.IsConflict(err) {
			t.Errorf("another manager in the same cluster: %v, want Conflict", err)
		}
		for cluster, c := range map[string]kubernetes.Interface{"a": a, "b": b} {
			cm, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), "applied", metav1.GetOptions{})
			if err != nil || cm.Data["value"] != cluster || len(cm.ManagedFields) != 1 {
				t.Errorf("in %s: %v, %v; want value %q and one manager", cluster, cm, err, cluster)
			}
		}
	})

	t.Run("events, which have no watch cache", func(t *testing.T) {
		event := func(c kubernetes.Interface) {
			_, err := c.CoreV1().Events("default").Create(t.Context(), &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"}}, metav1.CreateOptions{})
			must(t, err)
		}
		w, err := a.CoreV1().Events("").Watch(t.Context(), metav1.ListOptions{})
		must(t, err)
		defer w.Stop()
		event(b)
		event(a)
		select {
		case e := <-w.ResultChan():
			if got := logicalcluster.From(e.Object.(*corev1.Event)); got != idA {
				t.Errorf("the first event is of cluster %s", got)
			}
		case <-time.After(30 * time.Second):
			t.Error("no event")
		}
		list, err := a.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("%d events, %v; want 1", len(list.Items), err)
		}
		everywhere, err := all.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(everywhere.Items) != 2 {
			t.Errorf("%d events in all clusters, %v; want 2", len(everywhere.Items), err)
		}
	})

	t.Run("names and generated names", func(t *testing.T) {
		for _, c := range []kubernetes.Interface{a, b} {
			_, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "..", Namespace: "default"}}, metav1.CreateOptions{})
			if !apierrors.IsInvalid(err) {
				t.Errorf("a name of dots: %v, want Invalid", err)
			}
		}
	})
}
