// Package integration tests the whole server in process, over its real etcd.
package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/test/framework"
)

// raw returns a client of the server's own identity for a cluster.
func raw(t *testing.T, s *framework.Server, cluster logicalcluster.Name) kubernetes.Interface {
	t.Helper()
	c, err := s.Clients(t).Kube(cluster)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newCluster makes a workspace below root and returns its logical cluster.
func newCluster(t *testing.T, s *framework.Server, name string) logicalcluster.Name {
	t.Helper()
	ws := createWorkspace(t, s.Clients(t), logicalcluster.Root, name, "")
	return logicalcluster.Name(ws.Spec.Cluster)
}

func createConfigMap(t *testing.T, c kubernetes.Interface, name, value string) *corev1.ConfigMap {
	t.Helper()
	_, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	cm, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string]string{"value": value},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

// TestEqualNamesSurviveARestart pins the trap that upstream's watch cache, filled by a
// WatchList, collapses objects of equal namespace and name from different clusters.
func TestEqualNamesSurviveARestart(t *testing.T) {
	s := framework.Start(t)
	clusters := make([]logicalcluster.Name, 20)
	for i := range clusters {
		clusters[i] = newCluster(t, s, fmt.Sprintf("storage%d", i))
		createConfigMap(t, raw(t, s, clusters[i]), "same", string(clusters[i]))
	}
	s.Restart(t)
	all, err := raw(t, s, logicalcluster.Wildcard).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for _, cm := range all.Items {
		if cm.Name == "same" {
			got++
		}
	}
	if got != len(clusters) {
		t.Errorf("wildcard list from the cache after a restart has %d config maps named same, want %d", got, len(clusters))
	}
	for _, cluster := range clusters {
		list, err := raw(t, s, cluster).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 || list.Items[0].Data["value"] != string(cluster) {
			t.Errorf("cluster %s lists %v from the cache, want its own object alone", cluster, list.Items)
		}
	}
}

func TestStorageIsolation(t *testing.T) {
	s := framework.Start(t)
	idA, idB := newCluster(t, s, "isoa"), newCluster(t, s, "isob")
	a, b := raw(t, s, idA), raw(t, s, idB)
	all := raw(t, s, logicalcluster.Wildcard)
	createConfigMap(t, a, "same", "a")
	createConfigMap(t, b, "same", "b")
	createConfigMap(t, b, "only-b", "b")

	t.Run("get reads the own object", func(t *testing.T) {
		for name, c := range map[string]kubernetes.Interface{"a": a, "b": b} {
			cm, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), "same", metav1.GetOptions{})
			if err != nil || cm.Data["value"] != name {
				t.Errorf("get in %s: %v, %v; want value %q", name, cm.Data, err, name)
			}
		}
		if _, err := a.CoreV1().ConfigMaps("default").Get(t.Context(), "only-b", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("get of another cluster's object: %v, want NotFound", err)
		}
	})

	t.Run("a forged cluster annotation is overwritten", func(t *testing.T) {
		cm, err := a.CoreV1().ConfigMaps("default").Get(t.Context(), "same", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cm.Annotations = map[string]string{logicalcluster.AnnotationKey: string(idB)}
		if cm, err = a.CoreV1().ConfigMaps("default").Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := logicalcluster.From(cm); got != idA {
			t.Errorf("cluster annotation is %q after a forged update, want %q", got, idA)
		}
		forged := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "forged", Annotations: map[string]string{logicalcluster.AnnotationKey: string(idB)}}}
		if forged, err = a.CoreV1().ConfigMaps("default").Create(t.Context(), forged, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := logicalcluster.From(forged); got != idA {
			t.Errorf("cluster annotation is %q after a forged create, want %q", got, idA)
		}
	})

	// The namespace of a wildcard request would be read as a cluster's name if it were
	// left in the key.
	t.Run("a wildcard list in a namespace spans clusters", func(t *testing.T) {
		list, err := all.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[logicalcluster.Key]bool{}
		for i := range list.Items {
			got[logicalcluster.KeyOf(&list.Items[i])] = true
		}
		for _, want := range []logicalcluster.Key{
			{Cluster: idA, Namespace: "default", Name: "same"},
			{Cluster: idB, Namespace: "default", Name: "same"},
			{Cluster: idB, Namespace: "default", Name: "only-b"},
		} {
			if !got[want] {
				t.Errorf("wildcard list lacks %s", want)
			}
		}
		other, err := all.CoreV1().ConfigMaps(string(idB)).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(other.Items) != 0 {
			t.Errorf("wildcard list of a namespace named like a cluster: %d items, %v; want none", len(other.Items), err)
		}
	})

	t.Run("the wildcard takes no single-object request", func(t *testing.T) {
		_, err := all.CoreV1().ConfigMaps("default").Get(t.Context(), "same", metav1.GetOptions{})
		if !apierrors.IsBadRequest(err) {
			t.Errorf("wildcard get: %v, want BadRequest", err)
		}
		err = all.CoreV1().ConfigMaps("default").Delete(t.Context(), "same", metav1.DeleteOptions{})
		if !apierrors.IsBadRequest(err) {
			t.Errorf("wildcard delete: %v, want BadRequest", err)
		}
	})

	t.Run("deletecollection stays in its cluster", func(t *testing.T) {
		createConfigMap(t, a, "gone", "a")
		if err := a.CoreV1().ConfigMaps("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.CoreV1().ConfigMaps("default").Get(t.Context(), "same", metav1.GetOptions{}); err != nil {
			t.Errorf("another cluster's object after deletecollection: %v", err)
		}
	})
}

func TestWatchIsolation(t *testing.T) {
	s := framework.Start(t)
	idA, idB := newCluster(t, s, "watcha"), newCluster(t, s, "watchb")
	a, b := raw(t, s, idA), raw(t, s, idB)
	all := raw(t, s, logicalcluster.Wildcard)
	createConfigMap(t, a, "before", "a")
	createConfigMap(t, b, "before", "b")

	tests := map[string]metav1.ListOptions{
		"from now":             {ResourceVersion: ""},
		"from any version":     {ResourceVersion: "0"},
		"with initial events":  {SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true},
		"with a name selector": {FieldSelector: "metadata.name=after"},
	}
	round := 0
	for name, opts := range tests {
		t.Run(name, func(t *testing.T) {
			round++
			wa, err := a.CoreV1().ConfigMaps("default").Watch(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			defer wa.Stop()
			wall, err := all.CoreV1().ConfigMaps("default").Watch(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			defer wall.Stop()

			value := fmt.Sprint("round ", round)
			createConfigMap(t, b, "after", value)
			createConfigMap(t, a, "after", value)
			seen := collect(t, wa, func(cm *corev1.ConfigMap) bool { return cm.Name == "after" && cm.Data["value"] == value })
			for _, cm := range seen {
				if got := logicalcluster.From(cm); got != idA {
					t.Errorf("the watch of one cluster got %s/%s of cluster %q", cm.Namespace, cm.Name, got)
				}
			}
			clusters := map[logicalcluster.Name]bool{}
			for _, cm := range collect(t, wall, func(cm *corev1.ConfigMap) bool {
				return cm.Name == "after" && cm.Data["value"] == value && logicalcluster.From(cm) == idA
			}) {
				if cm.Name == "after" {
					clusters[logicalcluster.From(cm)] = true
				}
			}
			if !clusters[idA] || !clusters[idB] {
				t.Errorf("the wildcard watch saw clusters %v, want both", clusters)
			}
			for _, c := range []kubernetes.Interface{a, b} {
				if err := c.CoreV1().ConfigMaps("default").Delete(t.Context(), "after", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// collect reads a watch until last matches an object, and returns the objects seen.
func collect(t *testing.T, w watch.Interface, last func(*corev1.ConfigMap) bool) []*corev1.ConfigMap {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var seen []*corev1.ConfigMap
	for {
		select {
		case <-ctx.Done():
			t.Fatalf("the watch did not deliver what was written; it delivered %d objects", len(seen))
		case event, ok := <-w.ResultChan():
			if !ok {
				t.Fatal("the watch ended early")
			}
			cm, ok := event.Object.(*corev1.ConfigMap)
			if !ok || event.Type == watch.Bookmark {
				continue
			}
			seen = append(seen, cm)
			if event.Type != watch.Deleted && last(cm) {
				return seen
			}
		}
	}
}
