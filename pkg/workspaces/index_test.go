package workspaces

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/informer/informertest"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

func workspace(parent, name, id string, change ...func(*tenancyv1alpha1.Workspace)) *tenancyv1alpha1.Workspace {
	ws := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-" + id),
			Annotations: map[string]string{logicalcluster.AnnotationKey: parent},
		},
		Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: id},
	}
	for _, f := range change {
		f(ws)
	}
	return ws
}

func deleting(ws *tenancyv1alpha1.Workspace) {
	now := metav1.Now()
	ws.DeletionTimestamp = &now
}

func ready(ws *tenancyv1alpha1.Workspace) {
	ws.Status.Phase = tenancyv1alpha1.WorkspacePhaseReady
}

// notThere is a live lookup that finds nothing and counts.
func notThere(calls *atomic.Int32) GetWorkspace {
	return func(_ context.Context, _ logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error) {
		calls.Add(1)
		return nil, apierrors.NewNotFound(workspacesResource, name)
	}
}

func newIndex(t *testing.T, get GetWorkspace, objs ...*tenancyv1alpha1.Workspace) (*Index, *informer.Informer[*tenancyv1alpha1.Workspace], *informertest.Feed[*tenancyv1alpha1.Workspace]) {
	t.Helper()
	if get == nil {
		get = notThere(new(atomic.Int32))
	}
	i, feed := informertest.New(t, &tenancyv1alpha1.Workspace{}, objs...)
	return NewIndex(i, get), i, feed
}

func TestResolve(t *testing.T) {
	objs := []*tenancyv1alpha1.Workspace{
		workspace("root", "org", "idorg"),
		workspace("idorg", "team", "idteam"),
		workspace("idorg", "going", "idgoing", deleting),
		// The same names elsewhere are other workspaces.
		workspace("root", "team", "idother"),
		workspace("root", "pending", ""),
	}
	cases := map[string]struct {
		path    string
		want    logicalcluster.Name
		wantErr error
	}{
		"root":              {path: "root", want: "root"},
		"child":             {path: "root:org", want: "idorg"},
		"grandchild":        {path: "root:org:team", want: "idteam"},
		"same name":         {path: "root:team", want: "idother"},
		"id":                {path: "idteam", want: "idteam"},
		"below an id":       {path: "idorg:team", want: "idteam"},
		"being deleted":     {path: "root:org:going", want: "idgoing"},
		"unknown name":      {path: "root:nope", wantErr: ErrNotFound},
		"unknown below":     {path: "root:nope:team", wantErr: ErrNotFound},
		"unknown id":        {path: "bcdfghjklmnpqrst", wantErr: ErrNotFound},
		"below unknown id":  {path: "bcdfghjklmnpqrst:team", wantErr: ErrNotFound},
		"a name is no id":   {path: "org", wantErr: ErrNotFound},
		"no cluster yet":    {path: "root:pending", wantErr: ErrNotFound},
		"system is none":    {path: "system", wantErr: ErrNotFound},
		"wildcard is none":  {path: "*", wantErr: ErrNotFound},
		"empty":             {path: "", wantErr: ErrNotFound},
		"deeper than there": {path: strings.Repeat("root:", 40) + "root", wantErr: ErrNotFound},
	}
	index, _, _ := newIndex(t, nil, objs...)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := index.Resolve(t.Context(), logicalcluster.Path(tc.path))
			if got != tc.want || !errors.Is(err, tc.wantErr) {
				t.Errorf("Resolve(%q) = %q, %v, want %q, %v", tc.path, got, err, tc.want, tc.wantErr)
			}
			if got := apierrors.IsNotFound(err); got != (tc.wantErr != nil) {
				t.Errorf("IsNotFound = %t", got)
			}
		})
	}
}

func TestResolveFollowsChanges(t *testing.T) {
	index, _, feed := newIndex(t, nil, workspace("root", "org", "old"))
	resolve := func(path string) string {
		t.Helper()
		got, err := index.Resolve(t.Context(), logicalcluster.Path(path))
		if err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		return string(got)
	}
	feed.Put(workspace("old", "team", "idteam"))
	if got := resolve("root:org:team"); got != "idteam" {
		t.Errorf("new child: %q", got)
	}
	feed.Delete(workspace("old", "team", "idteam"))
	feed.Delete(workspace("root", "org", "old"))
	for _, path := range []string{"root:org", "old", "root:org:team", "idteam"} {
		if got := resolve(path); got != "" {
			t.Errorf("%q is deleted and resolves to %q", path, got)
		}
	}

	feed.Put(workspace("root", "org", "new"))
	if got := resolve("root:org"); got != "new" {
		t.Errorf("recreated name: %q", got)
	}
	if got := resolve("root:org:team"); got != "" {
		t.Errorf("a child of the old workspace shows in the new one: %q", got)
	}

	// After a lost watch, deletion and creation look like one update.
	feed.Put(workspace("root", "org", "newer"))
	if got := resolve("root:org"); got != "newer" {
		t.Errorf("name recreated unseen: %q", got)
	}
	if got := resolve("new"); got != "" {
		t.Errorf("the id that went unseen resolves to %q", got)
	}
}

func TestResolveLive(t *testing.T) {
	var calls atomic.Int32
	there := map[logicalcluster.Key]string{}
	get := func(_ context.Context, parent logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error) {
		calls.Add(1)
		id, ok := there[logicalcluster.Key{Cluster: parent, Name: name}]
		if !ok {
			return nil, apierrors.NewNotFound(workspacesResource, name)
		}
		return workspace(string(parent), name, id), nil
	}
	index, _, feed := newIndex(t, get)

	if _, err := index.Resolve(t.Context(), "root:org:team"); !errors.Is(err, ErrNotFound) {
		t.Fatalf("error %v, want %v", err, ErrNotFound)
	}
	if got := calls.Swap(0); got != 1 {
		t.Errorf("%d lookups for a path whose first part is missing, want 1", got)
	}
	// A negative answer is not kept.
	there[logicalcluster.Key{Cluster: "root", Name: "org"}] = "idorg"
	there[logicalcluster.Key{Cluster: "idorg", Name: "team"}] = "idteam"
	if got, err := index.Resolve(t.Context(), "root:org:team"); got != "idteam" || err != nil {
		t.Fatalf("Resolve() = %q, %v", got, err)
	}
	// What was found live can be called by id, and has a path, before its event comes.
	if got, err := index.Resolve(t.Context(), "idteam"); got != "idteam" || err != nil {
		t.Errorf("Resolve(id) = %q, %v", got, err)
	}
	if got, ok := index.Path("idteam"); got != "root:org:team" || !ok {
		t.Errorf("Path() = %q, %t", got, ok)
	}
	// The events take over: no more lookups, and what is deleted is gone.
	feed.Put(workspace("root", "org", "idorg"))
	feed.Put(workspace("idorg", "team", "idteam"))
	calls.Store(0)
	if got, err := index.Resolve(t.Context(), "root:org:team"); got != "idteam" || err != nil || calls.Load() != 0 {
		t.Errorf("Resolve() = %q, %v with %d lookups, want none", got, err, calls.Load())
	}
	feed.Delete(workspace("idorg", "team", "idteam"))
	if _, err := index.Resolve(t.Context(), "idteam"); !errors.Is(err, ErrNotFound) {
		t.Errorf("error %v, want %v", err, ErrNotFound)
	}
}

func TestResolveLiveError(t *testing.T) {
	down := errors.New("etcd is away")
	index, _, _ := newIndex(t, func(context.Context, logicalcluster.Name, string) (*tenancyv1alpha1.Workspace, error) {
		return nil, down
	})
	_, err := index.Resolve(t.Context(), "root:org")
	if !errors.Is(err, down) || errors.Is(err, ErrNotFound) {
		t.Errorf("error %v, want %v and not %v", err, down, ErrNotFound)
	}
}

// TestResolveLiveIsBounded fails if requests for unknown paths can pile up lookups.
func TestResolveLiveIsBounded(t *testing.T) {
	entered, leave := make(chan struct{}, 100), make(chan struct{})
	index, _, _ := newIndex(t, func(_ context.Context, _ logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error) {
		entered <- struct{}{}
		<-leave
		return nil, apierrors.NewNotFound(workspacesResource, name)
	})
	const more = maxLiveLookups + 8
	done := make(chan error, more)
	for range more {
		go func() {
			_, err := index.Resolve(t.Context(), "root:nope")
			done <- err
		}()
	}
	for range maxLiveLookups {
		<-entered
	}
	select {
	case <-entered:
		t.Errorf("more than %d lookups at once", maxLiveLookups)
	case <-time.After(100 * time.Millisecond):
	}
	// Who waits for a turn can give up.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := index.Resolve(ctx, "root:nope"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	close(leave)
	for range more {
		if err := <-done; !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	}
}

func TestTree(t *testing.T) {
	index, _, _ := newIndex(t, nil,
		workspace("root", "org", "idorg"),
		workspace("idorg", "team", "idteam"),
		workspace("idorg", "other", "idother", deleting),
		workspace("gone", "orphan", "idorphan"),
	)
	cases := map[string]struct {
		cluster       logicalcluster.Name
		wantPath      logicalcluster.Path
		wantAncestors []logicalcluster.Name
		wantChildren  []string
		wantDeleting  bool
	}{
		"root":    {cluster: "root", wantPath: "root", wantAncestors: []logicalcluster.Name{"root"}, wantChildren: []string{"org"}},
		"middle":  {cluster: "idorg", wantPath: "root:org", wantAncestors: []logicalcluster.Name{"idorg", "root"}, wantChildren: []string{"other", "team"}},
		"leaf":    {cluster: "idteam", wantPath: "root:org:team", wantAncestors: []logicalcluster.Name{"idteam", "idorg", "root"}},
		"going":   {cluster: "idother", wantPath: "root:org:other", wantAncestors: []logicalcluster.Name{"idother", "idorg", "root"}, wantDeleting: true},
		"unknown": {cluster: "nope"},
		"orphan":  {cluster: "idorphan"},
		"system":  {cluster: "system"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path, ok := index.Path(tc.cluster)
			if path != tc.wantPath || ok != (tc.wantPath != "") {
				t.Errorf("Path() = %q, %t, want %q", path, ok, tc.wantPath)
			}
			if diff := cmp.Diff(tc.wantAncestors, index.Ancestors(tc.cluster)); diff != "" {
				t.Errorf("Ancestors (-want +got):\n%s", diff)
			}
			var children []string
			for _, ws := range index.ListChildren(tc.cluster) {
				children = append(children, ws.Name)
			}
			if diff := cmp.Diff(tc.wantChildren, children, cmpopts.SortSlices(strings.Compare)); diff != "" {
				t.Errorf("ListChildren (-want +got):\n%s", diff)
			}
			if got := index.Deleting(tc.cluster); got != tc.wantDeleting {
				t.Errorf("Deleting() = %t", got)
			}
		})
	}
}

// TestNothingIsKept lets workspaces come, change and go: the index remembers how many
// there are meanwhile, and nothing of them afterwards.
func TestNothingIsKept(t *testing.T) {
	index, workspaces, feed := newIndex(t, nil, workspace("root", "org", "idorg"))
	feed.Put(workspace("idorg", "a", "ida"))
	feed.Put(workspace("idorg", "b", "idb"))
	feed.Put(workspace("idorg", "b", "idb", ready))
	index.remember("idfound", foundWorkspace{logicalcluster.Key{Cluster: "ida", Name: "found"}, workspace("ida", "found", "idfound")})
	feed.Put(workspace("ida", "found", "idfound"))
	feed.Delete(workspace("idorg", "a", "ida"))
	if !index.HasChildren("idorg") || !index.HasChildren("root") || index.HasChildren("idb") {
		t.Errorf("children of %v, want those of root and idorg alone", index.children)
	}
	feed.Delete(workspace("idorg", "b", "idb"))
	if index.HasChildren("idorg") {
		t.Error("idorg has children after the last has gone")
	}
	feed.Delete(workspace("ida", "found", "idfound"))
	feed.Delete(workspace("root", "org", "idorg"))
	if n := len(index.place) + len(index.children) + len(index.found) + len(workspaces.List()); n != 0 {
		t.Errorf("kept: places %v, children %v, found %v, objects %v", index.place, index.children, index.found, workspaces.List())
	}
}
