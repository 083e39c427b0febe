package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/13eedeaf/kcp/test/framework"
)

// makeServiceAccount makes a namespace where there is none, and a service account in it.
func makeServiceAccount(t *testing.T, c kubernetes.Interface, namespace, name string) {
	t.Helper()
	_, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	_, err = c.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
}

// TestForeignWorkspace: whoever may not enter a workspace does not learn whether there
// is one.
func TestForeignWorkspace(t *testing.T) {
	s := framework.Start(t)
	alice, bob := login(t, s, "alice"), login(t, s, "bob")
	alicePath, _ := alice.home()
	bobPath, bobID := bob.home()
	createWorkspace(t, admin(t, s), "root", "shared", "")
	account := bearer(t, s, accountToken(t, alice.kube(alicePath), "default", "robot"))

	foreign := []string{string(bobPath), string(bobID), "root", "root:shared", "root:users"}
	unknown := []string{"root:nowhere", string(bobPath) + "x", "bcdfghjklmnpqrst", "root:shared:nowhere", "nowhere:at:all", strings.Repeat("root:", 40) + "root"}
	requests := map[string]func(p *person, at string) response{
		"list":   func(p *person, at string) response { return p.do(http.MethodGet, at+"/api/v1/configmaps", "") },
		"get":    func(p *person, at string) response { return p.do(http.MethodGet, at+"/api/v1/namespaces/default", "") },
		"watch":  func(p *person, at string) response { return p.do(http.MethodGet, at+"/api/v1/secrets?watch=true", "") },
		"create": func(p *person, at string) response { return p.do(http.MethodPost, at+"/api/v1/namespaces", `{}`) },
		"delete": func(p *person, at string) response {
			return p.do(http.MethodDelete, at+"/api/v1/namespaces/default", "")
		},
		"own kind": func(p *person, at string) response {
			return p.do(http.MethodGet, at+"/apis/tenancy.kcp.io/v1alpha1/workspaces", "")
		},
		"unknown kind": func(p *person, at string) response { return p.do(http.MethodGet, at+"/apis/example.com/v1/things", "") },
		"review": func(p *person, at string) response {
			return p.do(http.MethodPost, at+"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", `{}`)
		},
		"index":     func(p *person, at string) response { return p.do(http.MethodGet, at, "") },
		"discovery": func(p *person, at string) response { return p.do(http.MethodGet, at+"/apis", "") },
		"kubectl's discovery": func(p *person, at string) response {
			return p.do(http.MethodGet, at+"/api", "", "Accept", discovery.AcceptV2+","+discovery.AcceptV1)
		},
		"openapi": func(p *person, at string) response { return p.do(http.MethodGet, at+"/openapi/v3", "") },
		"version": func(p *person, at string) response { return p.do(http.MethodGet, at+"/version", "") },
		"impersonating": func(p *person, at string) response {
			return p.do(http.MethodGet, at+"/api/v1/configmaps", "", "Impersonate-User", "bob")
		},
	}
	for name, request := range requests {
		t.Run(name, func(t *testing.T) {
			for who, p := range map[string]*person{"alice": alice, "anonymous": bearer(t, s, ""), "service account": account} {
				wantCode := http.StatusForbidden
				if who == "service account" {
					wantCode = http.StatusUnauthorized
				}
				want := request(p, "/clusters/"+foreign[0])
				if want.code != wantCode || (wantCode == http.StatusForbidden && !strings.Contains(want.body, "access to the workspace denied, or there is no such workspace")) {
					t.Errorf("%s in %s: %d %s, want %d", who, foreign[0], want.code, want.body, wantCode)
				}
				for _, at := range append(foreign[1:], unknown...) {
					if diff := cmp.Diff(want, request(p, "/clusters/"+at), cmp.AllowUnexported(response{})); diff != "" {
						t.Errorf("%s in %s is not answered as in %s (-want +got):\n%s", who, at, foreign[0], diff)
					}
				}
			}
		})
	}
	t.Run("administrators are told", func(t *testing.T) {
		root := &person{t: t, server: s, config: s.AdminConfig(t, "")}
		for _, at := range unknown {
			if r := root.do(http.MethodGet, "/clusters/"+at+"/api/v1/configmaps", ""); r.code != http.StatusNotFound || r.status.Message != "there is no such workspace" {
				t.Errorf("%s: %d %s, want 404", at, r.code, r.body)
			}
		}
	})
	t.Run("locations", func(t *testing.T) {
		for _, at := range append(foreign[1:], unknown...) {
			r := alice.do(http.MethodGet, "/services/locations/clusters/"+at+"/apis/scheduling.kcp.io/v1alpha1/locations", "")
			if want := fmt.Sprintf("user %q has no access to workspace %q", "alice", at); r.code != http.StatusForbidden || !strings.Contains(r.body, strings.ReplaceAll(want, `"`, `\"`)) {
				t.Errorf("%s: %d %s, want 403", at, r.code, r.body)
			}
		}
	})
}

// TestRequestPaths: no way to write a path leads into another cluster or out of one.
func TestRequestPaths(t *testing.T) {
	s := framework.Start(t)
	alice, bob := login(t, s, "alice"), login(t, s, "bob")
	own, ownID := alice.home()
	foreign, foreignID := bob.home()
	_, err := bob.kube(foreign).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "treasure"}}, metav1.CreateOptions{})
	must(t, err)

	t.Run("tricks", func(t *testing.T) {
		const list = "/api/v1/namespaces/default/configmaps"
		for path, want := range map[string]int{
			// The control: the same request in one's own workspace.
			"/clusters/" + string(own) + list:   http.StatusOK,
			"/clusters/" + string(ownID) + list: http.StatusOK,

			"/clusters/" + string(own) + "/../" + string(foreign) + list:                                     http.StatusBadRequest,
			"/clusters/" + string(own) + "/%2e%2e/" + string(foreign) + list:                                 http.StatusBadRequest,
			"/clusters/" + string(own) + "/..%2f" + string(foreign) + list:                                   http.StatusBadRequest,
			"/clusters/" + string(own) + "%2f" + string(foreign) + list:                                      http.StatusBadRequest,
			"/clusters/" + string(own) + "/clusters/" + string(foreign) + list:                               http.StatusBadRequest,
			"/clusters/" + string(own) + "/clusters/*" + list:                                                http.StatusBadRequest,
			"/clusters/" + string(own) + "//clusters/" + string(foreign) + list:                              http.StatusBadRequest,
			"/clusters/" + string(own) + "/./clusters/" + string(foreign) + list:                             http.StatusBadRequest,
			"/clusters/" + string(own) + "/api//v1/configmaps":                                               http.StatusBadRequest,
			"/clusters/" + string(own) + "/api/v1/namespaces/default/../../../../" + string(foreign) + list:  http.StatusBadRequest,
			"/clusters/" + string(own) + "/api/v1/namespaces/..%2f..%2f" + string(foreignID) + "/configmaps": http.StatusBadRequest,
			"/clusters/" + string(foreign) + "/../" + string(own) + list:                                     http.StatusBadRequest,
			"/clusters//api/v1/configmaps":                                                                   http.StatusBadRequest,
			"/clusters/":                                                                                     http.StatusBadRequest,
			"/clusters":                                                                                      http.StatusBadRequest,

			"/clusters/*" + list:                                              http.StatusForbidden,
			"/clusters/%2a" + list:                                            http.StatusForbidden,
			"/clusters/*/api/v1/namespaces/default/configmaps/a":              http.StatusForbidden,
			"/clusters/system" + list:                                         http.StatusForbidden,
			"/clusters/system/apis/rbac.authorization.k8s.io/v1/clusterroles": http.StatusForbidden,
			"/clusters/root" + list:                                           http.StatusForbidden,
			"//clusters/" + string(foreign) + list:                            http.StatusForbidden,
			"/./clusters/" + string(foreign) + list:                           http.StatusForbidden,
			"/Clusters/" + string(own) + list:                                 http.StatusForbidden,
			"/clusters%2f" + string(foreign) + list:                           http.StatusBadRequest,
			"/api/v1/namespaces/default/configmaps":                           http.StatusForbidden,
			"/api/v1/secrets":                                                 http.StatusForbidden,
			"/apis/tenancy.kcp.io/v1alpha1/workspaces":                        http.StatusForbidden,

			"/clusters/ROOT" + list:                                 http.StatusNotFound,
			"/clusters/root:" + list:                                http.StatusNotFound,
			"/clusters/:root" + list:                                http.StatusNotFound,
			"/clusters/root::users" + list:                          http.StatusNotFound,
			"/clusters/" + string(own) + ":*" + list:                http.StatusNotFound,
			"/clusters/root%20" + list:                              http.StatusNotFound,
			"/clusters/root%00" + list:                              http.StatusNotFound,
			"/clusters/..%00" + list:                                http.StatusNotFound,
			"/clusters/." + list:                                    http.StatusNotFound,
			"/clusters/.." + list:                                   http.StatusNotFound,
			"/clusters/-" + list:                                    http.StatusNotFound,
			"/clusters/" + strings.Repeat("a", 64) + list:           http.StatusNotFound,
			"/clusters/" + strings.Repeat("a", 100000) + list:       http.StatusNotFound,
			"/clusters/" + strings.Repeat("a:", 30000) + "a" + list: http.StatusForbidden,
		} {
			r := alice.do(http.MethodGet, path, "")
			if r.code != want {
				t.Errorf("%.120s: %d %.300s, want %d", path, r.code, r.body, want)
			}
			if r.code != http.StatusOK && r.status.Kind != "Status" {
				t.Errorf("%.120s: the answer is no Status: %.300s", path, r.body)
			}
			if strings.Contains(r.body, "treasure") {
				t.Errorf("%.120s shows another workspace", path)
			}
		}
	})

	t.Run("a malformed name is explained", func(t *testing.T) {
		r := alice.do(http.MethodGet, "/clusters/Root:Org/api/v1/configmaps", "")
		if want := `workspace path "Root:Org" is malformed: segments are lower-case letters, digits and '-'`; !strings.Contains(r.status.Message, want) {
			t.Errorf("message %q, want %q", r.status.Message, want)
		}
	})

	// An admin of a workspace may do everything in it, also impersonate; that must not
	// open what belongs to the server.
	t.Run("what is the server's own", func(t *testing.T) {
		for _, path := range []string{
			"/metrics", "/metrics/slis", "/debug/pprof/heap", "/debug/pprof/", "/debug/flags/v", "/debug/api_priority_and_fairness/dump_requests", "/configz", "/statusz", "/flagz", "/logs/", "/idp/", "/nothing",
			"/services/home", "/services/gateway/clusters/*/api/v1/secrets?watch=true", "/services/locations/clusters/" + string(foreign) + "/apis/scheduling.kcp.io/v1alpha1/locations",
		} {
			if r := alice.do(http.MethodGet, "/clusters/"+string(own)+path, ""); r.code != http.StatusNotFound {
				t.Errorf("%s in an own workspace: %d %.200s, want 404", path, r.code, r.body)
			}
			// Home is everybody's; and 403 and 404 are both refusals where there is no workspace.
			if r := alice.do(http.MethodGet, path, ""); r.code != http.StatusForbidden && r.code != http.StatusNotFound && path != "/services/home" {
				t.Errorf("%s: %d %.200s, want 403 or 404", path, r.code, r.body)
			}
		}
		root := &person{t: t, server: s, config: s.AdminConfig(t, "")}
		for _, path := range []string{"/metrics", "/clusters/root/metrics", "/clusters/root/debug/pprof/"} {
			if r := root.do(http.MethodGet, path, ""); r.code != http.StatusOK {
				t.Errorf("%s as an administrator: %d %.200s, want 200", path, r.code, r.body)
			}
		}
		for _, path := range []string{"", "/api", "/apis", "/version", "/openapi/v3", "/healthz", "/livez", "/readyz", "/openid/v1/jwks"} {
			if r := alice.do(http.MethodGet, "/clusters/"+string(own)+path, ""); r.code != http.StatusOK {
				t.Errorf("%q in an own workspace: %d %.200s, want 200", path, r.code, r.body)
			}
		}
	})
}
