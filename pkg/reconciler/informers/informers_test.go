package informers

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
)

var kinds = map[string]string{
	"configmaps": "ConfigMap", "namespaces": "Namespace", "logicalclusters": "LogicalCluster",
	"workspaces": "Workspace", "workspacetypes": "WorkspaceType", "synctargets": "SyncTarget",
	"syncreports": "SyncReport", "locations": "Location", "placements": "Placement",
	"assignments": "Assignment", "gatewayreports": "GatewayReport", "gatewayinstances": "GatewayInstance",
}

// server answers lists with two objects of one name from two clusters, holds watches
// open, and counts both by path.
type server struct {
	mu     sync.Mutex
	counts map[string]int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	verb := "list"
	if r.URL.Query().Get("watch") != "" {
		verb = "watch"
	}
	s.mu.Lock()
	s.counts[verb+" "+r.URL.Path]++
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if verb == "watch" {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	apiVersion := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/clusters/*/api/"), "/clusters/*/apis/")
	slash := strings.LastIndexByte(apiVersion, '/')
	kind := kinds[apiVersion[slash+1:]]
	apiVersion = apiVersion[:slash]
	item := func(cluster string) string {
		return `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","metadata":{"name":"x","resourceVersion":"1","annotations":{"kcp.io/cluster":"` + cluster + `"}}}`
	}
	_, _ = fmt.Fprintf(w, `{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"1"},"items":[%s,%s]}`, apiVersion, kind+"List", item("a"), item("b"))
}

func (s *server) lists() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for key, n := range s.counts {
		if path, ok := strings.CutPrefix(key, "list "); ok {
			out[path] = n
		}
	}
	return out
}

func newSet(t *testing.T) (*Set, *server) {
	t.Helper()
	s := &server{counts: map[string]int{}}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	c, err := clients.New(&rest.Config{Host: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	return NewSet(c), s
}

func start(t *testing.T, set *Set) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	set.Start(ctx)
	t.Cleanup(func() {
		cancel()
		set.Wait()
	})
}

func waitForSync(t *testing.T, set *Set) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if !set.WaitForSync(ctx) {
		t.Fatal("not synced within 30 s")
	}
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func TestOneInformerPerResource(t *testing.T) {
	set, server := newSet(t)
	workspaces, maps := set.Workspaces(), set.Unstructured(configMaps)
	if set.Workspaces() != workspaces || set.Unstructured(configMaps) != maps {
		t.Error("asking twice gives two informers")
	}
	if diff := cmp.Diff(map[string]int{}, server.lists()); diff != "" {
		t.Errorf("asked before the start (-want +got):\n%s", diff)
	}
	start(t, set)
	set.Start(t.Context()) // again does nothing
	// Asked for later: started at once.
	for range 3 {
		set.Namespaces()
	}
	waitForSync(t, set)
	want := map[string]int{
		"/clusters/*/api/v1/configmaps":                       1,
		"/clusters/*/api/v1/namespaces":                       1,
		"/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces": 1,
	}
	if diff := cmp.Diff(want, server.lists()); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
	if got := len(set.Unstructured(configMaps).List()); got != 2 {
		t.Errorf("%d objects, want one of each cluster", got)
	}
}

// TestTyped asks for every typed informer, so that each reads its own resource, in all
// clusters and namespaces.
func TestTyped(t *testing.T) {
	set, server := newSet(t)
	start(t, set)
	got := map[string]func() int{
		"/clusters/*/api/v1/namespaces":                                func() int { return len(set.Namespaces().List()) },
		"/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters":        func() int { return len(set.LogicalClusters().List()) },
		"/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces":          func() int { return len(set.Workspaces().List()) },
		"/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspacetypes":      func() int { return len(set.WorkspaceTypes().List()) },
		"/clusters/*/apis/workload.kcp.io/v1alpha1/synctargets":        func() int { return len(set.SyncTargets().List()) },
		"/clusters/*/apis/workload.kcp.io/v1alpha1/syncreports":        func() int { return len(set.SyncReports().List()) },
		"/clusters/*/apis/scheduling.kcp.io/v1alpha1/locations":        func() int { return len(set.Locations().List()) },
		"/clusters/*/apis/scheduling.kcp.io/v1alpha1/placements":       func() int { return len(set.Placements().List()) },
		"/clusters/*/apis/scheduling.kcp.io/v1alpha1/assignments":      func() int { return len(set.Assignments().List()) },
		"/clusters/*/apis/networking.kcp.io/v1alpha1/gatewayreports":   func() int { return len(set.GatewayReports().List()) },
		"/clusters/*/apis/networking.kcp.io/v1alpha1/gatewayinstances": func() int { return len(set.GatewayInstances().List()) },
	}
	want := map[string]int{}
	for path, count := range got {
		count() // asks for it
		want[path] = 1
	}
	waitForSync(t, set)
	if diff := cmp.Diff(want, server.lists()); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
	for path, count := range got {
		if n := count(); n != 2 {
			t.Errorf("%s: %d objects, want one of each cluster", path, n)
		}
	}
}

func TestWaitForSyncEndsWithContext(t *testing.T) {
	set, _ := newSet(t)
	set.Workspaces() // never started
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if set.WaitForSync(ctx) {
		t.Error("synced without a start")
	}
}
