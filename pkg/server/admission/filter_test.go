package admission

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

var (
	loopback = &user.DefaultInfo{Name: "system:apiserver", Groups: []string{"system:masters"}}
	admin    = &user.DefaultInfo{Name: "admin", Groups: []string{"system:masters"}}
	tenant   = &user.DefaultInfo{Name: "alice", Groups: []string{"system:authenticated"}}
)

func TestFilterSystemOwned(t *testing.T) {
	const (
		assignments = "/apis/scheduling.kcp.io/v1alpha1/namespaces/ns/assignments"
		reports     = "/apis/workload.kcp.io/v1alpha1/namespaces/ns/syncreports"
		gateways    = "/apis/networking.kcp.io/v1alpha1/namespaces/ns/gatewayreports"
		instances   = "/apis/networking.kcp.io/v1alpha1/gatewayinstances"
	)
	cases := map[string]struct {
		user         user.Info
		method, path string
		header       http.Header
		mark         *Writer
		wantStatus   int
	}{
		"tenant reads one":                        {user: tenant, method: "GET", path: assignments + "/t1"},
		"tenant lists":                            {user: tenant, method: "GET", path: assignments},
		"tenant watches":                          {user: tenant, method: "GET", path: assignments + "?watch=true"},
		"tenant creates":                          {user: tenant, method: "POST", path: assignments, wantStatus: 403},
		"tenant updates":                          {user: tenant, method: "PUT", path: assignments + "/t1", wantStatus: 403},
		"tenant patches":                          {user: tenant, method: "PATCH", path: assignments + "/t1", wantStatus: 403},
		"tenant patches the status":               {user: tenant, method: "PATCH", path: assignments + "/t1/status", wantStatus: 403},
		"tenant deletes":                          {user: tenant, method: "DELETE", path: assignments + "/t1", wantStatus: 403},
		"tenant deletes all":                      {user: tenant, method: "DELETE", path: assignments, wantStatus: 403},
		"tenant uses another version":             {user: tenant, method: "POST", path: strings.Replace(assignments, "v1alpha1", "v2", 1), wantStatus: 403},
		"tenant uses an unknown method":           {user: tenant, method: "LINK", path: assignments + "/t1", wantStatus: 403},
		"tenant writes a sync report":             {user: tenant, method: "PATCH", path: reports + "/x", wantStatus: 403},
		"tenant writes a gateway report":          {user: tenant, method: "PATCH", path: gateways + "/x", wantStatus: 403},
		"tenant writes a gateway instance":        {user: tenant, method: "POST", path: instances, wantStatus: 403},
		"tenant writes something else":            {user: tenant, method: "POST", path: "/api/v1/namespaces/ns/configmaps"},
		"tenant writes another group's kind":      {user: tenant, method: "POST", path: "/apis/example.com/v1/namespaces/ns/assignments"},
		"admin patches":                           {user: admin, method: "PATCH", path: assignments + "/t1", wantStatus: 403},
		"admin has impersonated the loopback":     {user: loopback, method: "PATCH", path: assignments + "/t1", header: http.Header{"Impersonate-User": {"system:apiserver"}}, wantStatus: 403},
		"nobody":                                  {method: "PATCH", path: assignments + "/t1", wantStatus: 403},
		"loopback's name without its group":       {user: &user.DefaultInfo{Name: "system:apiserver"}, method: "PATCH", path: assignments + "/t1", wantStatus: 403},
		"loopback creates":                        {user: loopback, method: "POST", path: assignments},
		"loopback deletes all":                    {user: loopback, method: "DELETE", path: assignments},
		"loopback on behalf of somebody":          {user: loopback, method: "POST", path: assignments, header: http.Header{"Impersonate-User": {"alice"}}, wantStatus: 403},
		"loopback on behalf of somebody, by uid":  {user: loopback, method: "POST", path: assignments, header: http.Header{"Impersonate-Uid": {"1"}}, wantStatus: 403},
		"marked request of a syncer":              {user: tenant, method: "POST", path: reports, mark: new(Syncer("t1"))},
		"marked request of a gateway":             {user: tenant, method: "PATCH", path: gateways + "/g", mark: new(Gateway())},
		"non-resource request with a like ending": {user: tenant, method: "POST", path: "/services/assignments"},
	}
	infos := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(tc.method, tc.path, nil)
			for k, v := range tc.header {
				r.Header[k] = v
			}
			info, err := infos.NewRequestInfo(r)
			if err != nil {
				t.Fatal(err)
			}
			ctx := request.WithRequestInfo(r.Context(), info)
			if tc.user != nil {
				ctx = request.WithUser(ctx, tc.user)
			}
			if tc.mark != nil {
				ctx = WithSystemWriter(ctx, *tc.mark)
			}
			reached := false
			w := httptest.NewRecorder()
			chain := WithOwnIdentity(withoutImpersonation(FilterSystemOwned(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))))
			chain.ServeHTTP(w, r.WithContext(ctx))
			if tc.wantStatus == 0 {
				if !reached || w.Code != 200 {
					t.Fatalf("refused with %d %s, want it to pass", w.Code, w.Body)
				}
				return
			}
			if reached || w.Code != tc.wantStatus {
				t.Fatalf("reached the handler: %v, status %d; want it refused with %d", reached, w.Code, tc.wantStatus)
			}
			var status metav1.Status
			if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
				t.Fatalf("body %q: %v", w.Body, err)
			}
			if status.Kind != "Status" || status.Reason != metav1.StatusReasonForbidden || !strings.Contains(status.Message, "only; users, admins included, can read them") {
				t.Errorf("status = %+v, want a Forbidden Status that says who writes these objects", status)
			}
		})
	}
}

// withoutImpersonation removes the headers, as upstream's impersonation filter does.
func withoutImpersonation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "Impersonate-") {
				r.Header.Del(name)
			}
		}
		next.ServeHTTP(w, r)
	})
}

// TestFilterMarksLoopback pins that the plugin can trust marks alone.
func TestFilterMarksLoopback(t *testing.T) {
	for name, tc := range map[string]struct {
		user user.Info
		want bool
	}{
		"loopback": {loopback, true},
		"admin":    {admin, false},
		"tenant":   {tenant, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/ns/pods", nil)
			info := &request.RequestInfo{IsResourceRequest: true, Verb: "create", APIVersion: "v1", Resource: "pods"}
			ctx := request.WithUser(request.WithRequestInfo(r.Context(), info), tc.user)
			var got bool
			WithOwnIdentity(FilterSystemOwned(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				writer, marked := systemWriter(r.Context())
				got = marked && writer == Server()
			}))).ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
			if got != tc.want {
				t.Errorf("marked as the server's = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestFilterNeedsRequestInfo(t *testing.T) {
	w := httptest.NewRecorder()
	FilterSystemOwned(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("reached the handler without RequestInfo")
	})).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/apis/scheduling.kcp.io/v1alpha1/namespaces/ns/assignments", nil))
	if w.Code != 500 {
		t.Errorf("status = %d, want 500", w.Code)
	}
}
