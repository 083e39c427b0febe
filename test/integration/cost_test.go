package integration

import (
	gocmp "cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/test/framework"
)

// etcdClient returns a client of the server's embedded etcd.
func etcdClient(t *testing.T, s *framework.Server) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(s.Root, "etcd", "sockets", "client.sock")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func revision(t *testing.T, c *clientv3.Client) int64 {
	t.Helper()
	resp, err := c.Get(t.Context(), "/", clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

// transactions returns what has been written since a revision to keys that contain one
// of the words: for each transaction the resources, those deleted with a minus.
func transactions(t *testing.T, c *clientv3.Client, since int64, words ...string) [][]string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	upTo := revision(t, c)
	byRevision := map[int64][]string{}
	for resp := range c.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(since+1)) {
		if err := resp.Err(); err != nil {
			t.Fatal(err)
		}
		for _, e := range resp.Events {
			key, rev := string(e.Kv.Key), e.Kv.ModRevision
			if rev > upTo || !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(key, w) }) {
				continue
			}
			resource := strings.Split(strings.TrimPrefix(key, "/registry/"), "/")
			name := resource[0]
			if strings.Contains(name, ".kcp.io") {
				name = resource[1]
			}
			if e.Type == clientv3.EventTypeDelete {
				name = "-" + name
			}
			byRevision[rev] = append(byRevision[rev], name)
		}
		if len(resp.Events) > 0 && resp.Events[len(resp.Events)-1].Kv.ModRevision >= upTo {
			break
		}
	}
	var out [][]string
	for rev := since; rev <= upTo; rev++ {
		if names := byRevision[rev]; names != nil {
			slices.Sort(names)
			out = append(out, names)
		}
	}
	return out
}

// TestWorkspaceTransactions counts what a workspace costs etcd: four transactions from
// its creation until it is at rest, two for its deletion.
func TestWorkspaceTransactions(t *testing.T) {
	s := framework.Start(t)
	c := admin(t, s)
	etcd := etcdClient(t, s)
	placed := func(cluster logicalcluster.Name) {
		t.Helper()
		framework.Eventually(t, "the default placement is decided", func(ctx context.Context) (bool, string) {
			p, err := c.Placements(cluster).Get(ctx, "default", metav1.GetOptions{})
			return err == nil && p.Status.Phase != "", fmt.Sprintf("%v %+v", err, p)
		})
	}
	createWorkspace(t, c, "root", "org", "organization")

	begin := revision(t, etcd)
	ws := createWorkspace(t, c, "root:org", "counted", "universal")
	placed("root:org:counted")
	// What might be written late is so while others are made.
	for n := range 5 {
		createWorkspace(t, c, "root:org", fmt.Sprintf("other%d", n), "universal")
		placed(logicalcluster.Name(fmt.Sprintf("root:org:other%d", n)))
	}
	words := []string{"/" + ws.Spec.Cluster + "/", "/counted"}
	inside := []string{"clusterrolebindings", "logicalclusters", "namespaces", "placements", "serviceaccounts"}
	// The status of the Placement and that of the Workspace come in any order.
	want := [][]string{inside, {"placements"}, {"workspaces"}, {"workspaces"}}
	got := transactions(t, etcd, begin, words...)
	slices.SortFunc(got, slices.Compare)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("transactions of a creation (-want +got):\n%s", diff)
	}

	begin = revision(t, etcd)
	if err := c.Workspaces("root:org").Delete(t.Context(), "counted", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitGone(t, c, "root:org", "counted", ws.UID)
	gone := [][]string{{"workspaces"}, nil}
	for _, name := range append(inside, "workspaces") {
		gone[1] = append(gone[1], "-"+name)
	}
	if diff := cmp.Diff(gone, transactions(t, etcd, begin, words...)); diff != "" {
		t.Errorf("transactions of a deletion (-want +got):\n%s", diff)
	}
}

// TestFirstObjects compares the objects that a new workspace begins with, which are
// written past the API, with the same ones created through it.
func TestFirstObjects(t *testing.T) {
	s := framework.Start(t)
	ws := createWorkspace(t, admin(t, s), "root", "first", "")
	c := s.Clients(t).Dynamic(logicalcluster.Name(ws.Spec.Cluster))
	for _, tc := range []struct {
		gvr             schema.GroupVersionResource
		namespace, name string
		// as is another name under which to create it.
		as string
	}{
		{gvr: clients.LogicalClustersResource, name: "cluster"},
		{gvr: clients.PlacementsResource, name: "default"},
		{gvr: rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"), name: "workspace-admin"},
		{gvr: corev1.SchemeGroupVersion.WithResource("serviceaccounts"), namespace: "default", name: "default", as: "other"},
		{gvr: corev1.SchemeGroupVersion.WithResource("namespaces"), name: "default", as: "other"},
	} {
		t.Run(tc.gvr.Resource, func(t *testing.T) {
			var client dynamic.ResourceInterface = c.Resource(tc.gvr)
			if tc.namespace != "" {
				client = c.Resource(tc.gvr).Namespace(tc.namespace)
			}
			first, err := client.Get(t.Context(), tc.name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if created := first.GetCreationTimestamp(); first.GetUID() == "" || created.IsZero() {
				t.Errorf("it has uid %q and was created at %v", first.GetUID(), created)
			}
			fresh := first.DeepCopy()
			fresh.Object["metadata"] = map[string]any{"name": tc.name}
			if path := first.GetAnnotations()["kcp.io/path"]; path != "" {
				fresh.SetAnnotations(map[string]string{"kcp.io/path": path})
			}
			if tc.as == "" {
				if err := client.Delete(t.Context(), tc.name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			} else {
				fresh.SetName(tc.as)
			}
			created, err := client.Create(t.Context(), fresh, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(bare(created, gocmp.Or(tc.as, tc.name)), bare(first, tc.name)); diff != "" {
				t.Errorf("created through the API and as first object (-API +first):\n%s", diff)
			}
		})
	}
}

// bare returns an object without what differs between any two of them.
func bare(obj *unstructured.Unstructured, name string) map[string]any {
	obj = obj.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	if obj.GetKind() == "Placement" {
		delete(obj.Object, "status") // comes later, from the scheduler
	}
	obj.SetName("x")
	if labels := obj.GetLabels(); labels[corev1.LabelMetadataName] == name {
		labels[corev1.LabelMetadataName] = "x"
		obj.SetLabels(labels)
	}
	return obj.Object
}
