package clients

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

type request struct{ Method, Path, Accept, ContentType string }

// recorder answers every request with body and remembers what it was asked.
func recorder(t *testing.T, body string) (*Clients, func() []request) {
	t.Helper()
	var (
		mu   sync.Mutex
		seen []request
	)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, request{r.Method, r.URL.Path, r.Header.Get("Accept"), r.Header.Get("Content-Type")})
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, body)
	}))
	t.Cleanup(server.Close)
	c, err := New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c, func() []request {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

func TestRequests(t *testing.T) {
	const (
		json     = "application/json"
		protobuf = "application/vnd.kubernetes.protobuf,application/json"
		pb       = "application/vnd.kubernetes.protobuf"
	)
	cases := map[string]struct {
		body string
		call func(t *testing.T, c *Clients) error
		want request
	}{
		"product kind in one cluster": {
			body: `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"a"},"spec":{"cluster":"abc"}}`,
			call: func(t *testing.T, c *Clients) error {
				ws, err := c.Workspaces("root").Get(t.Context(), "a", metav1.GetOptions{})
				if err == nil && ws.Spec.Cluster != "abc" {
					t.Errorf("spec.cluster = %q, want abc", ws.Spec.Cluster)
				}
				return err
			},
			want: request{Method: "GET", Path: "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/a", Accept: json},
		},
		"product kind of all clusters": {
			body: `{"apiVersion":"scheduling.kcp.io/v1alpha1","kind":"AssignmentList","items":[]}`,
			call: func(t *testing.T, c *Clients) error {
				_, err := c.Assignments(logicalcluster.Wildcard, "").List(t.Context(), metav1.ListOptions{})
				return err
			},
			want: request{Method: "GET", Path: "/clusters/*/apis/scheduling.kcp.io/v1alpha1/assignments", Accept: json},
		},
		"product kind is written as JSON": {
			body: `{"apiVersion":"scheduling.kcp.io/v1alpha1","kind":"Assignment"}`,
			call: func(t *testing.T, c *Clients) error {
				_, err := c.Assignments("abc", "ns").Create(t.Context(), &schedulingv1alpha1.Assignment{}, metav1.CreateOptions{})
				return err
			},
			want: request{Method: "POST", Path: "/clusters/abc/apis/scheduling.kcp.io/v1alpha1/namespaces/ns/assignments", Accept: json, ContentType: json},
		},
		"core kind is written as protobuf": {
			body: `{"apiVersion":"v1","kind":"Namespace"}`,
			call: func(t *testing.T, c *Clients) error {
				_, err := c.Core("abc").Namespaces().Create(t.Context(), &corev1.Namespace{}, metav1.CreateOptions{})
				return err
			},
			want: request{Method: "POST", Path: "/clusters/abc/api/v1/namespaces", Accept: protobuf, ContentType: pb},
		},
		"rbac": {
			body: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole"}`,
			call: func(t *testing.T, c *Clients) error {
				_, err := c.RBAC("abc").ClusterRoles().Get(t.Context(), "x", metav1.GetOptions{})
				return err
			},
			want: request{Method: "GET", Path: "/clusters/abc/apis/rbac.authorization.k8s.io/v1/clusterroles/x", Accept: protobuf},
		},
		"whole clientset": {
			body: `{"apiVersion":"apps/v1","kind":"Deployment"}`,
			call: func(t *testing.T, c *Clients) error {
				kube, err := c.Kube("abc")
				if err != nil {
					return err
				}
				_, err = kube.AppsV1().Deployments("ns").Get(t.Context(), "x", metav1.GetOptions{})
				return err
			},
			want: request{Method: "GET", Path: "/clusters/abc/apis/apps/v1/namespaces/ns/deployments/x", Accept: protobuf},
		},
		"dynamic": {
			body: `{"apiVersion":"apps/v1","kind":"Deployment"}`,
			call: func(t *testing.T, c *Clients) error {
				gvr := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
				_, err := c.Dynamic("abc").Resource(gvr).Namespace("ns").Get(t.Context(), "x", metav1.GetOptions{})
				return err
			},
			want: request{Method: "GET", Path: "/clusters/abc/apis/apps/v1/namespaces/ns/deployments/x", Accept: json},
		},
		"discovery": {
			body: `{"gitVersion":"v1.2.3"}`,
			call: func(_ *testing.T, c *Clients) error {
				d, err := c.Discovery("abc")
				if err != nil {
					return err
				}
				_, err = d.ServerVersion()
				return err
			},
			want: request{Method: "GET", Path: "/clusters/abc/version", Accept: json},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, seen := recorder(t, tc.body)
			if err := tc.call(t, c); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]request{tc.want}, seen()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoRateLimit fails if client-go's default of 5 requests per second applies, which
// it does wherever a configuration leaves QPS at zero.
func TestNoRateLimit(t *testing.T) {
	c, _ := recorder(t, `{}`)
	kube, err := c.Kube("abc")
	if err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]rest.Interface{
		"typed":     c.Workspaces("abc").GetClient(),
		"core":      c.Core("abc").RESTClient(),
		"clientset": kube.AppsV1().RESTClient(),
	} {
		if limiter := client.GetRateLimiter(); limiter != nil {
			t.Errorf("%s: client has a rate limit of %v requests per second", name, limiter.QPS())
		}
	}
}

func TestNewRefusesBadHost(t *testing.T) {
	if _, err := New(&rest.Config{Host: "https://%zz"}); err == nil {
		t.Error("no error for a host that is no URL")
	}
}

func BenchmarkClient(b *testing.B) {
	c, err := New(&rest.Config{Host: "https://localhost:1"})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = c.Workspaces("abc")
	}
}
