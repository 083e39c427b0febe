package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	corev1alpha1 "github.com/13eedeaf/kcp/pkg/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/test/framework"
)

// admin returns the administrator's clients: paths and ids are both good for a cluster.
func admin(t *testing.T, s *framework.Server) *clients.Clients {
	t.Helper()
	cfg := s.AdminConfig(t, "root")
	cfg.Host = s.URL
	c, err := clients.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newWorkspace(name, typ string) *tenancyv1alpha1.Workspace {
	ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if typ != "" {
		ws.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Name: typ}
	}
	return ws
}

// createWorkspace creates a workspace and waits until it is Ready.
func createWorkspace(t *testing.T, c *clients.Clients, parent logicalcluster.Name, name, typ string) *tenancyv1alpha1.Workspace {
	t.Helper()
	ws, err := c.Workspaces(parent).Create(t.Context(), newWorkspace(name, typ), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return waitReady(t, c, parent, ws.Name)
}

func waitReady(t *testing.T, c *clients.Clients, parent logicalcluster.Name, name string) *tenancyv1alpha1.Workspace {
	t.Helper()
	var ws *tenancyv1alpha1.Workspace
	framework.Eventually(t, "workspace "+name+" is ready", func(ctx context.Context) (bool, string) {
		var err error
		ws, err = c.Workspaces(parent).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return ws.Status.Phase == tenancyv1alpha1.WorkspacePhaseReady, fmt.Sprintf("%+v", ws.Status)
	})
	return ws
}

func waitGone(t *testing.T, c *clients.Clients, parent logicalcluster.Name, name string, uid types.UID) {
	t.Helper()
	framework.Eventually(t, "workspace "+name+" is gone", func(ctx context.Context) (bool, string) {
		ws, err := c.Workspaces(parent).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || (err == nil && ws.UID != uid) {
			return true, ""
		}
		return false, fmt.Sprintf("%v %+v", err, ws.Status)
	})
}

func TestWorkspaces(t *testing.T) {
	s := framework.Start(t)
	c := admin(t, s)

	t.Run("root", func(t *testing.T) {
		lc, err := c.LogicalClusters("root").Get(t.Context(), "cluster", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if lc.Annotations["kcp.io/path"] != "root" || lc.Spec.Type != "root" || lc.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
			t.Errorf("LogicalCluster of root: %+v", lc)
		}
		types, err := c.WorkspaceTypes("root").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, typ := range types.Items {
			names = append(names, typ.Name)
		}
		if diff := cmp.Diff([]string{"home", "organization", "root", "team", "universal"}, names); diff != "" {
			t.Errorf("types (-want +got):\n%s", diff)
		}
		waitReady(t, c, "root", "users")
	})

	t.Run("a new workspace", func(t *testing.T) {
		org := createWorkspace(t, c, "root", "org", "organization")
		ws := createWorkspace(t, c, "root:org", "team", "")
		id := logicalcluster.Name(ws.Spec.Cluster)
		if len(id) != 16 || !id.Valid() || ws.Spec.URL != s.URL+"/clusters/root:org:team" || ws.Spec.Type.Name != "team" {
			t.Errorf("spec %+v", ws.Spec)
		}
		if logicalcluster.From(ws) != logicalcluster.Name(org.Spec.Cluster) {
			t.Errorf("the object stands in cluster %q, want %q", logicalcluster.From(ws), org.Spec.Cluster)
		}
		for _, cluster := range []logicalcluster.Name{id, "root:org:team", logicalcluster.Name(org.Spec.Cluster + ":team")} {
			lc, err := c.LogicalClusters(cluster).Get(t.Context(), "cluster", metav1.GetOptions{})
			if err != nil {
				t.Fatalf("%s: %v", cluster, err)
			}
			want := &corev1alpha1.LogicalClusterOwner{Cluster: org.Spec.Cluster, Name: "team", UID: string(ws.UID)}
			if diff := cmp.Diff(want, lc.Spec.Owner); diff != "" || lc.Annotations["kcp.io/path"] != "root:org:team" {
				t.Errorf("%s: path %q, owner (-want +got):\n%s", cluster, lc.Annotations["kcp.io/path"], diff)
			}
		}
		if _, err := c.Core(id).Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := c.Placements(id).Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		binding, err := c.RBAC(id).ClusterRoleBindings().Get(t.Context(), "workspace-admin", metav1.GetOptions{})
		if err != nil || len(binding.Subjects) != 1 || !strings.Contains(ws.Annotations[tenancyv1alpha1.OwnerAnnotationKey], binding.Subjects[0].Name) {
			t.Errorf("binding %+v, %v; owner %s", binding, err, ws.Annotations[tenancyv1alpha1.OwnerAnnotationKey])
		}
		framework.Eventually(t, "the default service account", func(ctx context.Context) (bool, string) {
			_, err := c.Core(id).ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
			return err == nil, fmt.Sprint(err)
		})
	})

	t.Run("what may not be", func(t *testing.T) {
		for _, tc := range []struct {
			parent logicalcluster.Name
			ws     *tenancyv1alpha1.Workspace
			want   string
		}{
			{"root", newWorkspace("x", "nope"), `there is no workspace type "nope"`},
			{"root", newWorkspace("x", "team"), `stands below one of type "organization"`},
			{"root:users", newWorkspace("x", "home"), "made by the server only"},
			{"root", newWorkspace("Bad_Name", ""), "metadata.name"},
			{"root", newWorkspace("a.b", ""), "a workspace name is a DNS label"},
			{"system", newWorkspace("x", ""), "is no workspace"},
		} {
			_, err := c.Workspaces(tc.parent).Create(t.Context(), tc.ws, metav1.CreateOptions{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("workspace %q of type %v in %s: error %v, want %q", tc.ws.Name, tc.ws.Spec.Type, tc.parent, err, tc.want)
			}
		}
		ws := createWorkspace(t, c, "root", "fixed", "")
		for _, patch := range []string{
			`{"spec":{"cluster":"bcdfghjklmnpqrst"}}`, `{"spec":{"URL":"https://evil.example.com"}}`, `{"spec":{"type":{"name":"team"}}}`,
			`{"metadata":{"annotations":{"tenancy.kcp.io/owner":"{}"}}}`, `{"metadata":{"finalizers":[]}}`,
		} {
			if _, err := c.Workspaces("root").Patch(t.Context(), "fixed", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
				t.Errorf("patch %s: error %v, want Forbidden", patch, err)
			}
		}
		// Who may write workspaces of a parent could otherwise get back into a child.
		if _, err := c.Workspaces("root").Patch(t.Context(), "fixed", types.MergePatchType, []byte(`{"status":{"phase":"Initializing"}}`), metav1.PatchOptions{}, "status"); !apierrors.IsForbidden(err) {
			t.Errorf("patch of the status: error %v, want Forbidden", err)
		}
		got, err := c.Workspaces("root").Patch(t.Context(), "fixed", types.MergePatchType, []byte(`{"spec":null,"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		if err != nil || got.Spec.Cluster != ws.Spec.Cluster || got.Labels["a"] != "b" {
			t.Errorf("patch that leaves spec out: %+v, %v", got, err)
		}
		if err := c.LogicalClusters("root:fixed").Delete(t.Context(), "cluster", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("deletion of the LogicalCluster: %v, want Forbidden", err)
		}
	})
}

func TestWorkspaceDeletion(t *testing.T) {
	s := framework.Start(t)
	c := admin(t, s)

	t.Run("a name that is used again shows nothing old", func(t *testing.T) {
		old := createWorkspace(t, c, "root", "again", "")
		if _, err := c.Core("root:again").ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "old"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Workspaces("root").Delete(t.Context(), "again", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		waitGone(t, c, "root", "again", old.UID)
		fresh := createWorkspace(t, c, "root", "again", "")
		if fresh.Spec.Cluster == old.Spec.Cluster {
			t.Errorf("the id %q is used again", old.Spec.Cluster)
		}
		if _, err := c.Core("root:again").ConfigMaps("default").Get(t.Context(), "old", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("old object in the new workspace: %v, want NotFound", err)
		}
		if _, err := c.Core(logicalcluster.Name(old.Spec.Cluster)).ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the old id answers %v, want NotFound", err)
		}
	})

	t.Run("a tree", func(t *testing.T) {
		var before map[string]int
		framework.Eventually(t, "every namespace has its service account", func(context.Context) (bool, string) {
			before = objectCount(t, s)
			return before["serviceaccounts"] == before["namespaces"], fmt.Sprint(before)
		})
		top := createWorkspace(t, c, "root", "top", "")
		for _, name := range []string{"a", "b"} {
			createWorkspace(t, c, "root:top", name, "")
			createWorkspace(t, c, logicalcluster.Name("root:top:"+name), "leaf", "")
		}
		if err := c.Workspaces("root").Delete(t.Context(), "top", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		waitGone(t, c, "root", "top", top.UID)
		framework.Eventually(t, "nothing is left behind", func(context.Context) (bool, string) {
			diff := cmp.Diff(before, objectCount(t, s))
			return diff == "", diff
		})
	})

	t.Run("finalizers are honoured", func(t *testing.T) {
		ws := createWorkspace(t, c, "root", "held", "")
		held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}}}
		if _, err := c.Core("root:held").ConfigMaps("default").Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Workspaces("root").Delete(t.Context(), "held", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "the workspace says what it waits for", func(ctx context.Context) (bool, string) {
			got, err := c.Workspaces("root").Get(ctx, "held", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			message := ""
			for _, condition := range got.Status.Conditions {
				message += condition.Message
			}
			return got.Status.Phase == tenancyv1alpha1.WorkspacePhaseDeleting && strings.Contains(message, `configmaps "default/held" (example.com/hold)`), fmt.Sprintf("%+v", got.Status)
		})
		// It can still be reached, to let go of what holds it, and takes nothing new.
		if _, err := c.Core("root:held").Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `workspace "root:held" is being deleted`) {
			t.Errorf("new namespace in it: %v, want Forbidden", err)
		}
		if _, err := c.Core("root:held").ConfigMaps("default").Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		waitGone(t, c, "root", "held", ws.UID)
	})

	t.Run("a namespace", func(t *testing.T) {
		createWorkspace(t, c, "root", "ns", "")
		createWorkspace(t, c, "root", "ns2", "")
		for _, cluster := range []logicalcluster.Name{"root:ns", "root:ns2"} {
			if _, err := c.Core(cluster).Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "app"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Core(cluster).ConfigMaps("app").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Core("root:ns").Namespaces().Delete(t.Context(), "app", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "the namespace is gone", func(ctx context.Context) (bool, string) {
			ns, err := c.Core("root:ns").Namespaces().Get(ctx, "app", metav1.GetOptions{})
			return apierrors.IsNotFound(err), fmt.Sprintf("%v %+v", err, ns.Status)
		})
		if _, err := c.Core("root:ns2").ConfigMaps("app").Get(t.Context(), "x", metav1.GetOptions{}); err != nil {
			t.Errorf("an object of the same name in another workspace: %v", err)
		}
	})
}

// objectCount counts the objects of all clusters for some kinds.
func objectCount(t *testing.T, s *framework.Server) map[string]int {
	t.Helper()
	c := s.Clients(t)
	const all = logicalcluster.Wildcard
	out := map[string]int{}
	count := func(kind string, n int, err error) {
		if err != nil {
			t.Fatal(err)
		}
		out[kind] = n
	}
	opts := metav1.ListOptions{}
	namespaces, err := c.Core(all).Namespaces().List(t.Context(), opts)
	count("namespaces", len(namespaces.Items), err)
	accounts, err := c.Core(all).ServiceAccounts("").List(t.Context(), opts)
	count("serviceaccounts", len(accounts.Items), err)
	bindings, err := c.RBAC(all).ClusterRoleBindings().List(t.Context(), opts)
	count("clusterrolebindings", len(bindings.Items), err)
	workspaces, err := c.Workspaces(all).List(t.Context(), opts)
	count("workspaces", len(workspaces.Items), err)
	placements, err := c.Placements(all).List(t.Context(), opts)
	count("placements", len(placements.Items), err)
	logicalClusters, err := c.LogicalClusters(all).List(t.Context(), opts)
	count("logicalclusters", len(logicalClusters.Items), err)
	return out
}

func TestRestartKeepsTheTree(t *testing.T) {
	s := framework.Start(t)
	c := admin(t, s)
	createWorkspace(t, c, "root", "a", "")
	ws := createWorkspace(t, c, "root:a", "b", "")
	s.Restart(t)
	c = admin(t, s)
	lc, err := c.LogicalClusters("root:a:b").Get(t.Context(), "cluster", metav1.GetOptions{})
	if err != nil || string(logicalcluster.From(lc)) != ws.Spec.Cluster {
		t.Errorf("root:a:b after a restart: %v, %v", lc, err)
	}
}

// TestHome asks for homes as two users whom the administrator impersonates.
func TestHome(t *testing.T) {
	s := framework.Start(t)
	as := func(user string) (*http.Client, *clients.Clients) {
		cfg := s.AdminConfig(t, "root")
		cfg.Host = s.URL
		cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		c, err := clients.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return client, c
	}
	home := func(client *http.Client) *tenancyv1alpha1.Workspace {
		t.Helper()
		resp, err := client.Get(s.URL + "/services/home")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		ws := &tenancyv1alpha1.Workspace{}
		if err := json.Unmarshal(body, ws); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v: %s", resp.Status, err, body)
		}
		return ws
	}
	aliceHTTP, alice := as("https://issuer.example.com#alice")
	_, bob := as("https://issuer.example.com#bob")

	start := time.Now()
	ws := home(aliceHTTP)
	t.Logf("first home after %s", time.Since(start))
	path := logicalcluster.Name(ws.Annotations["kcp.io/path"])
	if !strings.HasPrefix(string(path), "root:users:alice-") || ws.Spec.URL != s.URL+"/clusters/"+string(path) || ws.Status.Phase != tenancyv1alpha1.WorkspacePhaseReady {
		t.Errorf("home %+v", ws)
	}
	if again := home(aliceHTTP); again.UID != ws.UID {
		t.Errorf("second use gives another home: %s, %s", again.Name, ws.Name)
	}
	if _, err := alice.Core(path).ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("the owner is not admin: %v", err)
	}
	if _, err := bob.Core(path).ConfigMaps("default").Get(t.Context(), "mine", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a stranger gets %v, want Forbidden", err)
	}
	// Its name is its name: what the users' workspace lists is what one types.
	list, err := admin(t, s).Workspaces("root:users").List(t.Context(), metav1.ListOptions{})
	if err != nil || !slices.ContainsFunc(list.Items, func(w tenancyv1alpha1.Workspace) bool { return "root:users:"+w.Name == string(path) }) {
		t.Errorf("homes %v, %v, want %s", list, err, path)
	}
}
