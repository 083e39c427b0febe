package drain

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/handover"
	"github.com/13eedeaf/kcp/pkg/scheduling"
)

// server knows SyncTargets us-east1 and us-west1 of cluster compute, which user admin may
// update.
func server(t *testing.T) *Handler {
	east, west := workloadv1alpha1.TargetKey("compute", "uid-east"), workloadv1alpha1.TargetKey("compute", "uid-west")
	return &Handler{
		Authorizer: authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			cluster, _ := logicalcluster.FromContext(ctx)
			if a.GetUser().GetName() == "broken" {
				return authorizer.DecisionNoOpinion, "", errors.New("out of order")
			}
			if cluster == "compute" && a.GetUser().GetName() == "admin" && a.GetVerb() == "update" && a.GetResource() == "synctargets" && a.IsResourceRequest() {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		}),
		SyncTarget: func(cluster logicalcluster.Name, name string) (*workloadv1alpha1.SyncTarget, bool) {
			return &workloadv1alpha1.SyncTarget{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-east"}}, cluster == "compute" && name == "us-east1"
		},
		Preview: func(_ context.Context, target string, force bool) ([]handover.Forecast, error) {
			if target != east {
				t.Errorf("asked for target %q, want %q", target, east)
			}
			if force {
				return []handover.Forecast{}, nil
			}
			ns := func(cluster logicalcluster.Name, name string) logicalcluster.Key {
				return logicalcluster.Key{Cluster: cluster, Name: name}
			}
			return []handover.Forecast{
				{Namespace: ns("b", "web"), Result: workloadv1alpha1.DrainMoves, To: &scheduling.Assigned{Target: west, Location: "default"}, Message: "chosen"},
				{Namespace: ns("a", "web"), Result: workloadv1alpha1.DrainMoves, To: &scheduling.Assigned{Target: "foreign", Location: "default"}},
				{Namespace: ns("b", "db"), Result: workloadv1alpha1.DrainHeld, Message: "held"},
				{Namespace: ns("unknown", "x"), Result: workloadv1alpha1.DrainIsBlocked, Message: "no other target can take over: " + west + ` at Location "default": it is cordoned`},
				{Namespace: ns("a", "end"), Result: workloadv1alpha1.DrainEnds},
			}, nil
		},
		Find: func(key string) (logicalcluster.Key, bool) {
			known := map[string]logicalcluster.Key{
				west: {Cluster: "compute", Name: "us-west1"}, east: {Cluster: "compute", Name: "us-east1"}, "foreign": {Cluster: "other", Name: "secret"},
			}
			k, ok := known[key]
			return k, ok
		},
		Path: func(c logicalcluster.Name) (logicalcluster.Path, bool) {
			return logicalcluster.Path("root:" + c), c != "unknown"
		},
	}
}

func get(t *testing.T, method, path, name string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	if name != "" {
		r = r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: name}))
	}
	w := httptest.NewRecorder()
	server(t).ServeHTTP(w, r)
	return w
}

func TestPreviews(t *testing.T) {
	w := get(t, http.MethodGet, "/services/drain/compute/us-east1", "admin")
	var got []workloadv1alpha1.DrainPreview
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	// What stays comes first, what ends next; a SyncTarget of another workspace has no name.
	want := []workloadv1alpha1.DrainPreview{
		{Workspace: "root:b", Namespace: "db", Result: "Held", Message: "held"},
		{Workspace: "unknown", Namespace: "x", Result: "Blocked", Message: `no other target can take over: us-west1 at Location "default": it is cordoned`},
		{Workspace: "root:a", Namespace: "end", Result: "Ends"},
		{Workspace: "root:a", Namespace: "web", Result: "Moves", To: &workloadv1alpha1.DrainDestination{Location: "default", Target: "foreign"}},
		{Workspace: "root:b", Namespace: "web", Result: "Moves", To: &workloadv1alpha1.DrainDestination{Location: "default", Target: "us-west1"}, Message: "chosen"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("previews (-want +got):\n%s", diff)
	}
	if w := get(t, http.MethodGet, "/services/drain/compute/us-east1?force=true", "admin"); strings.TrimSpace(w.Body.String()) != "[]" {
		t.Errorf("forced: %d %s, want an empty list", w.Code, w.Body)
	}
}

func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		method, path, user string
		want               int
	}{
		"nobody":                             {http.MethodGet, "/services/drain/compute/us-east1", "", http.StatusUnauthorized},
		"somebody else":                      {http.MethodGet, "/services/drain/compute/us-east1", "tenant", http.StatusForbidden},
		"a foreign cluster":                  {http.MethodGet, "/services/drain/elsewhere/us-east1", "admin", http.StatusForbidden},
		"no cluster's name":                  {http.MethodGet, "/services/drain/*/us-east1", "admin", http.StatusForbidden},
		"no such target":                     {http.MethodGet, "/services/drain/compute/us-north1", "admin", http.StatusNotFound},
		"a write":                            {http.MethodPost, "/services/drain/compute/us-east1", "admin", http.StatusMethodNotAllowed},
		"no target":                          {http.MethodGet, "/services/drain/compute", "admin", http.StatusBadRequest},
		"too much":                           {http.MethodGet, "/services/drain/compute/us-east1/x", "admin", http.StatusBadRequest},
		"force is no switch":                 {http.MethodGet, "/services/drain/compute/us-east1?force=maybe", "admin", http.StatusBadRequest},
		"an authorizer that is out of order": {http.MethodGet, "/services/drain/compute/us-east1", "broken", http.StatusInternalServerError},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if w := get(t, tc.method, tc.path, tc.user); w.Code != tc.want {
				t.Errorf("answer is %d %s, want %d", w.Code, w.Body, tc.want)
			}
		})
	}
	// An account of another workspace only has the name of one here.
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/services/drain/compute/us-east1", nil)
	foreign := &user.DefaultInfo{Name: "admin", Groups: []string{"system:serviceaccounts"}}
	w := httptest.NewRecorder()
	server(t).ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), foreign)))
	if w.Code != http.StatusForbidden {
		t.Errorf("a service account of elsewhere is answered %d %s, want 403", w.Code, w.Body)
	}
	// Whoever may not is not told whether there is such a target.
	one, other := get(t, http.MethodGet, "/services/drain/compute/us-east1", "tenant"), get(t, http.MethodGet, "/services/drain/compute/us-east9", "tenant")
	if a, b := one.Body.String(), strings.ReplaceAll(other.Body.String(), "us-east9", "us-east1"); a != b {
		t.Errorf("the refusals differ:\n%s\n%s", a, b)
	}
}
