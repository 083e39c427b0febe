package workspaces

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer/informertest"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

func TestHomeName(t *testing.T) {
	cases := map[string]string{
		"https://issuer.example.com#alice@example.com": "alice",
		"https://127.0.0.1:6443/idp#alice":             "alice",
		"https://issuer.example.com/alice":             "alice",
		"oidc:bob@example.com":                         "bob",
		"alice":                                        "alice",
		"Alice.Liddell+test@example.com":               "alice-liddell-test",
		"x#../../etc":                                  "etc",
		"x#Ünïcödé":                                    "n-c-d",
		"x#日本":                                         "user",
		"x#@example.com":                               "example-com",
		"x#" + strings.Repeat("a", 100):                strings.Repeat("a", 36),
		"x#" + strings.Repeat("a", 35) + "-bbb":        strings.Repeat("a", 35),
		"-":                                            "user",
		"https://issuer.example.com#":                  "issuer-example-com",
	}
	label := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	seen := map[string]string{}
	for username, want := range cases {
		got := HomeName(username)
		if prefix := got[:len(got)-9]; prefix != want || got[len(got)-9] != '-' {
			t.Errorf("HomeName(%q) = %q, want %s-<8 characters>", username, got, want)
		}
		if long := homeName(username, longHashLength); !label.MatchString(got) || !label.MatchString(long) || len(long) > 63 {
			t.Errorf("HomeName(%q) = %q, or %q, is no DNS label", username, got, long)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q share home %q", username, other, got)
		}
		seen[got] = username
		if again := HomeName(username); again != got {
			t.Errorf("HomeName(%q) changes: %q, %q", username, got, again)
		}
	}
	// Fixed for all time: people have these names in their shells' histories.
	if got := HomeName("https://issuer.example.com#alice@example.com"); got != "alice-7fneihk3" {
		t.Errorf("HomeName = %q", got)
	}
}

// fakeServer is a store of workspaces that makes them Ready when it is told to.
type fakeServer struct {
	feed *informertest.Feed[*tenancyv1alpha1.Workspace]

	mu      sync.Mutex
	created []*tenancyv1alpha1.Workspace
	names   map[string]bool
	// onCreate is called, with the lock held, for each new workspace.
	onCreate func(ws *tenancyv1alpha1.Workspace)
}

func (f *fakeServer) create(_ context.Context, parent logicalcluster.Name, ws *tenancyv1alpha1.Workspace) (*tenancyv1alpha1.Workspace, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.names[ws.Name] {
		return nil, apierrors.NewAlreadyExists(workspacesResource, ws.Name)
	}
	f.names[ws.Name] = true
	f.created = append(f.created, ws)
	stored := ws.DeepCopy()
	metav1.SetMetaDataAnnotation(&stored.ObjectMeta, logicalcluster.AnnotationKey, string(parent))
	stored.Spec.Cluster = "id" + ws.Name
	f.onCreate(stored)
	return stored, nil
}

func newHome(t *testing.T, objs ...*tenancyv1alpha1.Workspace) (*Home, *fakeServer) {
	t.Helper()
	objs = append(objs, workspace("root", "users", "idusers"))
	index, _, feed := newIndex(t, nil, objs...)
	f := &fakeServer{feed: feed, names: map[string]bool{}}
	f.onCreate = func(ws *tenancyv1alpha1.Workspace) {
		feed.Put(ws)
		ws = ws.DeepCopy()
		ready(ws)
		feed.Put(ws)
	}
	for _, obj := range objs {
		f.names[obj.Name] = true
	}
	return NewHome(index, f.create), f
}

var alice = &user.DefaultInfo{
	Name: "https://issuer.example.com#alice", UID: "1", Groups: []string{"dev"},
	Extra: map[string][]string{"token": {"secret"}},
}

func ownedBy(name string) func(*tenancyv1alpha1.Workspace) {
	return func(ws *tenancyv1alpha1.Workspace) {
		metav1.SetMetaDataAnnotation(&ws.ObjectMeta, tenancyv1alpha1.OwnerAnnotationKey, `{"username":"`+name+`"}`)
	}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestEnsureHomeCreates(t *testing.T) {
	home, server := newHome(t)
	ws, err := home.EnsureHome(within(t), alice)
	if err != nil {
		t.Fatal(err)
	}
	if ws.Name != HomeName(alice.Name) || ws.Status.Phase != tenancyv1alpha1.WorkspacePhaseReady {
		t.Errorf("home %q in phase %q", ws.Name, ws.Status.Phase)
	}
	want := []*tenancyv1alpha1.Workspace{{
		ObjectMeta: metav1.ObjectMeta{
			Name:        HomeName(alice.Name),
			Annotations: map[string]string{tenancyv1alpha1.OwnerAnnotationKey: `{"username":"https://issuer.example.com#alice","uid":"1","groups":["dev"]}`},
		},
		Spec: tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: "home"}},
	}}
	if diff := cmp.Diff(want, server.created); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	again, err := home.EnsureHome(within(t), alice)
	if err != nil || again.Spec.Cluster != ws.Spec.Cluster || len(server.created) != 1 {
		t.Errorf("second use: %v, %v, %d created", again, err, len(server.created))
	}
}

func TestEnsureHomeConcurrently(t *testing.T) {
	home, server := newHome(t)
	ctx := within(t)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if ws, err := home.EnsureHome(ctx, alice); err != nil || ws.Name != HomeName(alice.Name) {
				t.Errorf("EnsureHome() = %v, %v", ws, err)
			}
		})
	}
	wg.Wait()
	if len(server.created) != 1 {
		t.Errorf("%d workspaces created", len(server.created))
	}
	home.mu.Lock()
	defer home.mu.Unlock()
	if len(home.waiters) != 0 {
		t.Errorf("%d waiters are left behind", len(home.waiters))
	}
}

func TestEnsureHomeOfSomebodyElse(t *testing.T) {
	home, server := newHome(t, workspace("idusers", HomeName(alice.Name), "idx", ready, ownedBy("https://other.example.com#alice")))
	ws, err := home.EnsureHome(within(t), alice)
	if err != nil {
		t.Fatal(err)
	}
	if ws.Name != homeName(alice.Name, longHashLength) || len(server.created) != 1 {
		t.Errorf("home %q, %d created", ws.Name, len(server.created))
	}
}

// TestEnsureHomeWaitsForDeletion asks for a home while the last one is being deleted.
func TestEnsureHomeWaitsForDeletion(t *testing.T) {
	old := workspace("idusers", HomeName(alice.Name), "idold", ready, deleting, ownedBy(alice.Name))
	home, server := newHome(t, old)
	type result struct {
		ws  *tenancyv1alpha1.Workspace
		err error
	}
	done := make(chan result, 1)
	go func() {
		ws, err := home.EnsureHome(within(t), alice)
		done <- result{ws, err}
	}()
	select {
	case r := <-done:
		t.Fatalf("got %v, %v while the old home is there", r.ws, r.err)
	case <-time.After(50 * time.Millisecond):
	}
	server.mu.Lock()
	delete(server.names, old.Name)
	server.mu.Unlock()
	server.feed.Delete(old)
	r := <-done
	if r.err != nil || r.ws.Spec.Cluster == "idold" {
		t.Errorf("EnsureHome() = %v, %v", r.ws, r.err)
	}
}

func TestEnsureHomeGivesUp(t *testing.T) {
	home, server := newHome(t)
	server.onCreate = func(ws *tenancyv1alpha1.Workspace) { server.feed.Put(ws) } // never ready
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := home.EnsureHome(ctx, alice); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want %v", err, context.DeadlineExceeded)
	}
	if len(home.waiters) != 0 {
		t.Errorf("%d waiters are left behind", len(home.waiters))
	}
}

func TestHomeHandler(t *testing.T) {
	cases := map[string]struct {
		method     string
		user       user.Info
		wantCode   int
		wantReason metav1.StatusReason
	}{
		"user":            {method: "GET", user: alice, wantCode: 200},
		"write":           {method: "POST", user: alice, wantCode: 405, wantReason: metav1.StatusReasonMethodNotAllowed},
		"nobody":          {method: "GET", wantCode: 401, wantReason: metav1.StatusReasonUnauthorized},
		"anonymous":       {method: "GET", user: &user.DefaultInfo{Name: user.Anonymous}, wantCode: 403, wantReason: metav1.StatusReasonForbidden},
		"service account": {method: "GET", user: &user.DefaultInfo{Name: "system:serviceaccount:default:ci"}, wantCode: 403, wantReason: metav1.StatusReasonForbidden},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			home, _ := newHome(t)
			ctx := within(t)
			if tc.user != nil {
				ctx = request.WithUser(ctx, tc.user)
			}
			w := httptest.NewRecorder()
			home.HomeHandler().ServeHTTP(w, httptest.NewRequest(tc.method, HomePattern, nil).WithContext(ctx))
			if w.Code != tc.wantCode {
				t.Fatalf("code %d, want %d: %s", w.Code, tc.wantCode, w.Body)
			}
			if tc.wantCode != http.StatusOK {
				var status metav1.Status
				if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || status.Kind != "Status" || status.Reason != tc.wantReason {
					t.Errorf("answer %s, want a Status with reason %q (%v)", w.Body, tc.wantReason, err)
				}
				return
			}
			var ws tenancyv1alpha1.Workspace
			if err := json.Unmarshal(w.Body.Bytes(), &ws); err != nil {
				t.Fatal(err)
			}
			if ws.Kind != "Workspace" || ws.APIVersion != "tenancy.kcp.io/v1alpha1" {
				t.Errorf("answer is a %s %s", ws.APIVersion, ws.Kind)
			}
			if got, want := ws.Annotations[logicalcluster.PathAnnotationKey], "root:users:"+HomeName(alice.Name); got != want {
				t.Errorf("path %q, want %q", got, want)
			}
			if strings.Contains(w.Body.String(), "secret") {
				t.Errorf("the answer shows what an authenticator keeps in extra: %s", w.Body)
			}
		})
	}
}
