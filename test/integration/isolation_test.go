package integration

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
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
		"openapi":   func(p *person, at string) response { return p.do(http.MethodGet, at+"/openapi/v3", "") },
		"version":   func(p *person, at string) response { return p.do(http.MethodGet, at+"/version", "") },
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

// TestCredentials: what does not say who one is gets 401, everywhere.
func TestCredentials(t *testing.T) {
	s := framework.Start(t)
	alice, bob := login(t, s, "alice"), login(t, s, "bob")
	own, ownID := alice.home()
	foreign, _ := bob.home()
	in := func(cluster logicalcluster.Name) string { return "/clusters/" + string(cluster) + "/api/v1/namespaces" }
	makeServiceAccount(t, alice.kube(own), "default", "robot")
	makeServiceAccount(t, bob.kube(foreign), "default", "robot")
	robot := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "robot"}
	bindCluster(t, alice.kube(own), "cluster-admin", robot)
	bindCluster(t, bob.kube(foreign), "cluster-admin", robot)
	issue := func() string {
		token, err := alice.kube(own).CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		must(t, err)
		return token.Status.Token
	}
	token := issue()

	t.Run("a service account of one cluster", func(t *testing.T) {
		p := bearer(t, s, token)
		// Its own first and after: what is remembered of a token must not let it in elsewhere.
		for range 2 {
			for path, want := range map[string]int{
				in(own):                     http.StatusOK,
				in(ownID):                   http.StatusOK,
				in(foreign):                 http.StatusUnauthorized,
				in("root"):                  http.StatusUnauthorized,
				in("system"):                http.StatusUnauthorized,
				in("*"):                     http.StatusUnauthorized,
				in("root:nowhere"):          http.StatusUnauthorized,
				"/api/v1/namespaces":        http.StatusUnauthorized,
				"/apis":                     http.StatusUnauthorized,
				"/services/home":            http.StatusForbidden,
				"/services/gateway/version": http.StatusForbidden,
				"/services/locations/clusters/" + string(own) + "/apis/scheduling.kcp.io/v1alpha1/locations":     http.StatusOK,
				"/services/locations/clusters/" + string(foreign) + "/apis/scheduling.kcp.io/v1alpha1/locations": http.StatusForbidden,
			} {
				if r := p.do(http.MethodGet, path, ""); r.code != want {
					t.Errorf("%s: %d %.200s, want %d", path, r.code, r.body, want)
				}
			}
		}
	})

	t.Run("a token that is no good", func(t *testing.T) {
		parts := strings.Split(token, ".")
		claims, err := base64.RawURLEncoding.DecodeString(parts[1])
		must(t, err)
		forged := map[string]any{}
		must(t, json.Unmarshal(claims, &forged))
		forged["kcp.io/cluster"] = "root"
		claims, err = json.Marshal(forged)
		must(t, err)
		for name, bad := range map[string]string{
			"garbage":          "garbage",
			"garbage of a JWT": "a.b.c",
			"another cluster":  parts[0] + "." + base64.RawURLEncoding.EncodeToString(claims) + "." + parts[2],
			"no signature":     parts[0] + "." + parts[1] + ".",
			"algorithm none":   base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + ".",
			"expired ID token": "eyJhbGciOiJSUzI1NiJ9." + base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"https://issuer.example.com","exp":1,"sub":"alice"}`)) + ".c2ln",
			"very long":        strings.Repeat("a", 200000),
		} {
			for _, path := range []string{in(own), in("root"), in("root:nowhere"), "/api", "/services/home", "/metrics"} {
				if r := bearer(t, s, bad).do(http.MethodGet, path, ""); r.code != http.StatusUnauthorized && !(name == "very long" && r.code == http.StatusRequestHeaderFieldsTooLarge) {
					t.Errorf("%s at %s: %d %.200s, want 401", name, path, r.code, r.body)
				}
			}
		}
	})

	t.Run("a token whose account is gone", func(t *testing.T) {
		token := issue()
		p := bearer(t, s, token)
		if r := p.do(http.MethodGet, in(own), ""); r.code != http.StatusOK {
			t.Fatalf("before: %d", r.code)
		}
		must(t, alice.kube(own).CoreV1().ServiceAccounts("default").Delete(t.Context(), "robot", metav1.DeleteOptions{}))
		// One that is known may be remembered for some seconds; a fresh one is refused now.
		framework.Eventually(t, "the token is refused", func(context.Context) (bool, string) {
			r := p.do(http.MethodGet, in(own), "")
			return r.code == http.StatusUnauthorized, fmt.Sprint(r.code)
		})
	})

	t.Run("expired client certificate", func(t *testing.T) {
		config := rest.CopyConfig(alice.config)
		config.CertData, config.KeyData = clientCertificate(t, s, "alice", nil, -time.Hour)
		if r := (&person{t: t, server: s, config: config}).do(http.MethodGet, in(own), ""); r.code != http.StatusUnauthorized {
			t.Errorf("%d %.200s, want 401", r.code, r.body)
		}
	})

	t.Run("headers of a front proxy are nothing", func(t *testing.T) {
		r := bearer(t, s, "").do(http.MethodGet, in("root"), "", "X-Remote-User", "kcp-admin", "X-Remote-Group", "system:masters")
		if r.code != http.StatusForbidden || !strings.Contains(r.body, "system:anonymous") {
			t.Errorf("%d %.200s, want 403 as system:anonymous", r.code, r.body)
		}
	})
}

// TestImpersonation: an admin of a workspace may impersonate whom they like, there.
func TestImpersonation(t *testing.T) {
	s := framework.Start(t)
	alice, bob := login(t, s, "alice"), login(t, s, "bob")
	own, ownID := alice.home()
	foreign, foreignID := bob.home()
	createWorkspace(t, admin(t, s), "root", "shared", "")
	shared := s.Admin(t, "root:shared")
	bindCluster(t, shared, "kcp:workspace-access", userSubject("alice"))
	bindCluster(t, shared, "view", userSubject("alice"))
	bindCluster(t, shared, "cluster-admin", userSubject("bob"))
	bindCluster(t, alice.kube(own), "view", userSubject("bob"))
	bindCluster(t, alice.kube(own), "kcp:workspace-access", userSubject("bob"))

	t.Run("in one's own workspace", func(t *testing.T) {
		asBob := alice.as(rest.ImpersonationConfig{UserName: "bob"})
		if _, err := asBob.kube(own).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("what bob may do: %v", err)
		}
		_, err := asBob.kube(own).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		refused(t, "what bob may not do", err, `User "bob" cannot list resource "secrets"`)
	})

	// The trap: upstream remembers for ten seconds, by user and request alone, that alice
	// may impersonate bob.
	t.Run("nowhere else", func(t *testing.T) {
		asBob := alice.as(rest.ImpersonationConfig{UserName: "bob"})
		for range 2 {
			_, err := asBob.kube(own).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			must(t, err)
			for _, cluster := range []logicalcluster.Name{"root:shared", foreign, foreignID, "root", "system", "*"} {
				_, err := asBob.kube(cluster).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
				refused(t, "in "+string(cluster), err, `User "alice" cannot impersonate`)
			}
		}
	})

	t.Run("no system identity", func(t *testing.T) {
		many := []string{"a", "b", "c", "d", "e"}
		for name, who := range map[string]rest.ImpersonationConfig{
			"system:masters":                 {UserName: "alice", Groups: []string{"system:masters"}},
			"system:masters among many":      {UserName: "alice", Groups: append(many, "system:masters")},
			"gateways":                       {UserName: "alice", Groups: []string{"system:kcp:gateways"}},
			"gateways among many":            {UserName: "alice", Groups: append(many, "system:kcp:gateways")},
			"the server":                     {UserName: "system:apiserver"},
			"a component":                    {UserName: "system:kcp:anything"},
			"a controller":                   {UserName: "system:kube-controller-manager"},
			"a node":                         {UserName: "system:node:n1"},
			"nodes":                          {UserName: "x", Groups: []string{"system:nodes"}},
			"another cluster's account":      {UserName: "system:serviceaccount:default:robot", Extra: map[string][]string{"authentication.kcp.io/cluster-name": {string(foreignID)}}},
			"one's own account, spelled out": {UserName: "system:serviceaccount:default:robot", Extra: map[string][]string{"authentication.kcp.io/cluster-name": {string(ownID)}}},
			"another issuer's user":          {UserName: "bob", Extra: map[string][]string{"authentication.kcp.io/issuer": {"https://issuer.example.com"}}},
		} {
			p := alice.as(who)
			_, err := p.kube(own).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v, want Forbidden", name, err)
			}
			if r := p.do(http.MethodGet, "/services/gateway/clusters/*/api/v1/services", ""); r.code != http.StatusForbidden {
				t.Errorf("%s at the gateway's virtual workspace: %d %.200s, want 403", name, r.code, r.body)
			}
		}
	})

	t.Run("an administrator as the server", func(t *testing.T) {
		// The name is not enough to be the server.
		p := (&person{t: t, server: s, config: adminConfig(t, s)}).as(rest.ImpersonationConfig{UserName: "system:apiserver", Groups: []string{"system:masters"}})
		refused(t, "deleting a LogicalCluster", p.clients().LogicalClusters("root:shared").Delete(t.Context(), "cluster", metav1.DeleteOptions{}), "LogicalClusters are written by the server")
		_, err := p.clients().Workspaces("root:users").Create(t.Context(), newWorkspace("forged", "home"), metav1.CreateOptions{})
		refused(t, "making a home", err, "made by the server only")
	})

	t.Run("a service account of one's own", func(t *testing.T) {
		makeServiceAccount(t, alice.kube(own), "default", "robot")
		bindCluster(t, alice.kube(own), "view", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "robot"})
		p := alice.as(rest.ImpersonationConfig{UserName: "system:serviceaccount:default:robot"})
		framework.Eventually(t, "it has its right", func(ctx context.Context) (bool, string) {
			_, err := p.kube(own).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
			return err == nil, fmt.Sprint(err)
		})
		_, err := p.kube(own).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		refused(t, "what it may not", err, "cannot list")
	})

	t.Run("a right that is granted elsewhere", func(t *testing.T) {
		// Bob may use the targets of his workspace; alice cannot become bob for that.
		location := &schedulingv1alpha1.Location{
			ObjectMeta: metav1.ObjectMeta{Name: "stolen"},
			Spec:       schedulingv1alpha1.LocationSpec{TargetWorkspace: string(foreign)},
		}
		bindCluster(t, alice.kube(own), "cluster-admin", userSubject("bob"), rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "robot"})
		bindCluster(t, bob.kube(foreign), "cluster-admin", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "robot"})
		for _, who := range []string{"bob", "system:serviceaccount:default:robot"} {
			_, err := alice.as(rest.ImpersonationConfig{UserName: who}).clients().Locations(own).Create(t.Context(), location, metav1.CreateOptions{})
			refused(t, "as "+who, err, "you may not use the SyncTargets of")
		}
		_, err := bearer(t, s, accountToken(t, alice.kube(own), "other", "robot")).clients().Locations(own).Create(t.Context(), location, metav1.CreateOptions{})
		refused(t, "as an account without rights", err, "cannot create")
		if _, err := bob.clients().Locations(foreign).Create(t.Context(), location, metav1.CreateOptions{}); err != nil {
			t.Errorf("bob himself: %v", err)
		}
	})
}

// TestLocationTargets: a Location reaches what somebody who may has pointed it to, and
// not what comes to stand there later.
func TestLocationTargets(t *testing.T) {
	s := framework.Start(t)
	root := admin(t, s)
	alice := login(t, s, "alice")
	own, _ := alice.home()
	createWorkspace(t, root, "root", "compute", "")
	location := func(target string) *schedulingv1alpha1.Location {
		return &schedulingv1alpha1.Location{ObjectMeta: metav1.ObjectMeta{Name: "compute"}, Spec: schedulingv1alpha1.LocationSpec{TargetWorkspace: target}}
	}
	newTarget := func(name string) {
		t.Helper()
		_, err := root.SyncTargets("root:compute").Create(t.Context(), &workloadv1alpha1.SyncTarget{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
	}
	instances := func(want int32) {
		t.Helper()
		framework.Eventually(t, fmt.Sprintf("the Location counts %d targets", want), func(ctx context.Context) (bool, string) {
			got, err := alice.clients().Locations(own).Get(ctx, "compute", metav1.GetOptions{})
			if err != nil || got.Status.Instances == nil {
				return false, fmt.Sprint(err)
			}
			return *got.Status.Instances == want, fmt.Sprint(*got.Status.Instances)
		})
	}
	newTarget("one")

	for target, want := range map[string]string{
		"root:compute": "spec.targetWorkspace: you may not use the SyncTargets of",
		"root:nowhere": "spec.targetWorkspace: you may not use the SyncTargets of",
		"root":         "spec.targetWorkspace: you may not use the SyncTargets of",
	} {
		_, err := alice.clients().Locations(own).Create(t.Context(), location(target), metav1.CreateOptions{})
		refused(t, target, err, want)
	}
	_, err := alice.clients().Locations(own).Create(t.Context(), location("Root Compute"), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `spec.targetWorkspace: Invalid value: "Root Compute": workspace path "Root Compute" is malformed`) {
		t.Errorf("no path: %v, want Invalid", err)
	}
	forged := location("")
	forged.Annotations = map[string]string{"scheduling.kcp.io/allowed-target-cluster": "root"}
	got, err := alice.clients().Locations(own).Create(t.Context(), forged, metav1.CreateOptions{})
	if err != nil || len(got.Annotations["scheduling.kcp.io/allowed-target-cluster"]) != 0 {
		t.Errorf("forged annotation: %v, %v", got.Annotations, err)
	}

	use := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "use"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"workload.kcp.io"}, Resources: []string{"synctargets"}, Verbs: []string{"use"}}},
	}
	grant := func() {
		t.Helper()
		_, err := root.RBAC("root:compute").ClusterRoles().Create(t.Context(), use, metav1.CreateOptions{})
		must(t, err)
		compute, err := root.Kube("root:compute")
		must(t, err)
		bindCluster(t, compute, "use", userSubject("alice"))
		bindCluster(t, compute, "kcp:workspace-access", userSubject("alice"))
	}
	grant()
	framework.Eventually(t, "the grant counts", func(ctx context.Context) (bool, string) {
		got, err := alice.clients().Locations(own).Get(ctx, "compute", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		got.Spec.TargetWorkspace = "root:compute"
		_, err = alice.clients().Locations(own).Update(ctx, got, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
	instances(1)
	newTarget("two")
	instances(2)

	// The workspace goes, and another takes its name.
	old, err := root.Workspaces("root").Get(t.Context(), "compute", metav1.GetOptions{})
	must(t, err)
	must(t, root.Workspaces("root").Delete(t.Context(), "compute", metav1.DeleteOptions{}))
	waitGone(t, root, "root", "compute", old.UID)
	createWorkspace(t, root, "root", "compute", "")
	newTarget("strange")
	newTarget("stranger")
	newTarget("strangest")
	instances(0)
	// Whoever changes nothing is not asked, and gets nothing.
	if got, err = alice.clients().Locations(own).Get(t.Context(), "compute", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	got.Labels = map[string]string{"a": "b"}
	if got, err = alice.clients().Locations(own).Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Errorf("a change of labels: %v", err)
	}
	got.Spec.InstanceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	_, err = alice.clients().Locations(own).Update(t.Context(), got, metav1.UpdateOptions{})
	refused(t, "a change of the selector", err, "you may not use the SyncTargets of")
	grant()
	framework.Eventually(t, "a new grant counts", func(ctx context.Context) (bool, string) {
		got, err := alice.clients().Locations(own).Get(ctx, "compute", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		got.Spec.Description = "again"
		_, err = alice.clients().Locations(own).Update(ctx, got, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
	instances(3)
}

// TestBootstrapRoles: the roles that stand once in the system cluster work in every
// workspace.
func TestBootstrapRoles(t *testing.T) {
	s := framework.Start(t)
	alice := login(t, s, "alice")
	own, _ := alice.home()
	owner := alice.kube(own)
	people := map[string]*person{}
	for _, role := range []string{"admin", "edit", "view"} {
		name := "the-" + role
		people[role] = login(t, s, name)
		bindCluster(t, owner, "kcp:workspace-access", userSubject(name))
		must(t, bindNamespace(t.Context(), owner, "default", role, userSubject(name)))
	}
	may := func(p *person, namespace, group, resource, verb string) bool {
		t.Helper()
		review, err := p.kube(own).AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Group: group, Resource: resource, Verb: verb}},
		}, metav1.CreateOptions{})
		must(t, err)
		return review.Status.Allowed
	}

	t.Run("rights", func(t *testing.T) {
		// Admin, edit and view are put together from others once the server runs.
		framework.Eventually(t, "the roles are filled", func(context.Context) (bool, string) {
			return may(people["view"], "default", "", "pods", "list") && may(people["admin"], "default", "", "pods", "create"), ""
		})
		type right struct{ namespace, group, resource, verb string }
		for role, rights := range map[string]map[right]bool{
			"view": {
				{"default", "", "pods", "list"}: true, {"default", "apps", "deployments", "watch"}: true, {"default", "", "secrets", "get"}: false,
				{"default", "", "configmaps", "create"}: false, {"kube-system", "", "pods", "list"}: false, {"", "", "namespaces", "list"}: false,
			},
			"edit": {
				{"default", "", "secrets", "get"}: true, {"default", "apps", "deployments", "create"}: true,
				{"default", "rbac.authorization.k8s.io", "rolebindings", "create"}: false,
			},
			"admin": {
				{"default", "rbac.authorization.k8s.io", "rolebindings", "create"}: true, {"default", "networking.k8s.io", "ingresses", "delete"}: true,
				{"", "rbac.authorization.k8s.io", "clusterrolebindings", "create"}: false, {"", "tenancy.kcp.io", "workspaces", "create"}: false,
				{"other", "", "pods", "list"}: false,
			},
		} {
			for r, want := range rights {
				if got := may(people[role], r.namespace, r.group, r.resource, r.verb); got != want {
					t.Errorf("%s may %v: %t, want %t", role, r, got, want)
				}
			}
		}
	})

	t.Run("access", func(t *testing.T) {
		review, err := people["view"].kube(own).AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/", Verb: "access"}},
		}, metav1.CreateOptions{})
		if err != nil || !review.Status.Allowed {
			t.Errorf("may access: %+v, %v", review.Status, err)
		}
		rules, err := people["view"].kube(own).AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"},
		}, metav1.CreateOptions{})
		must(t, err)
		if rules.Status.Incomplete || rules.Status.EvaluationError != "" {
			t.Errorf("the rules are incomplete: %s", rules.Status.EvaluationError)
		}
		lists := false
		for _, rule := range rules.Status.ResourceRules {
			lists = lists || contains(rule.Resources, "configmaps") && contains(rule.Verbs, "list")
		}
		access := false
		for _, rule := range rules.Status.NonResourceRules {
			access = access || contains(rule.Verbs, "access") && contains(rule.NonResourceURLs, "/")
		}
		if !lists || !access {
			t.Errorf("the rules name configmaps: %t, access: %t; want both", lists, access)
		}
	})

	t.Run("an admin of a namespace gives what they have", func(t *testing.T) {
		c := people["admin"].kube(own)
		for _, role := range []string{"view", "edit", "admin"} {
			if err := bindNamespace(t.Context(), c, "default", role, userSubject("carol")); err != nil {
				t.Errorf("binding %s: %v", role, err)
			}
		}
		refused(t, "binding cluster-admin", bindNamespace(t.Context(), c, "default", "cluster-admin", userSubject("carol")), "attempting to grant RBAC permissions not currently held")
		refused(t, "in another namespace", bindNamespace(t.Context(), c, "kube-system", "view", userSubject("carol")), "cannot create")
		if err := bindNamespace(t.Context(), c, "default", "no-such-role", userSubject("carol")); !apierrors.IsNotFound(err) {
			t.Errorf("binding a role that there is not: %v, want NotFound", err)
		}
		_, err := c.RbacV1().Roles("default").Create(t.Context(), &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: "readers"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Errorf("a role of what they have: %v", err)
		}
	})

	t.Run("built-in roles are shown and stay as they are", func(t *testing.T) {
		roles := owner.RbacV1().ClusterRoles()
		view, err := roles.Get(t.Context(), "view", metav1.GetOptions{})
		if err != nil || len(view.Rules) == 0 || view.Annotations["kcp.io/cluster"] != "system" {
			t.Fatalf("get view: %v, %v", view, err)
		}
		list, err := roles.List(t.Context(), metav1.ListOptions{})
		must(t, err)
		for _, role := range list.Items {
			if logicalcluster.From(&role) == logicalcluster.System {
				t.Errorf("list shows the built-in role %s", role.Name)
			}
		}
		view.Rules = nil
		_, err = roles.Update(t.Context(), view, metav1.UpdateOptions{})
		refused(t, "changing it", err, "it is built in and cannot be changed in a workspace")
		refused(t, "deleting it", roles.Delete(t.Context(), "view", metav1.DeleteOptions{}), "it is built in and cannot be changed in a workspace")
		if _, err := roles.Get(t.Context(), "no-such-role", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a role that there is not: %v, want NotFound", err)
		}
		// One of the same name takes its place, here and nowhere else.
		_, err = roles.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}}, metav1.CreateOptions{})
		must(t, err)
		framework.Eventually(t, "view gives nothing more", func(context.Context) (bool, string) {
			return !may(people["view"], "default", "", "pods", "list"), ""
		})
		system, err := s.Admin(t, "system").RbacV1().ClusterRoles().Get(t.Context(), "view", metav1.GetOptions{})
		if err != nil || len(system.Rules) == 0 {
			t.Errorf("the built-in role: %v, %v", system, err)
		}
	})

	// Upstream binds rights to the accounts of its controllers, by name.
	t.Run("an account named as a controller is no controller", func(t *testing.T) {
		account := bearer(t, s, accountToken(t, owner, "kube-system", "namespace-controller"))
		if may(account, "default", "", "secrets", "delete") || may(account, "", "", "namespaces", "delete") {
			t.Error("kube-system/namespace-controller has the controller's rights")
		}
	})
}

func contains(list []string, value string) bool {
	for _, v := range list {
		if v == value {
			return true
		}
	}
	return false
}

// TestStorageTraps asks for what a cluster-blind layer below would get wrong.
func TestStorageTraps(t *testing.T) {
	s := framework.Start(t)
	idA, idB := newCluster(t, s, "a"), newCluster(t, s, "b")
	a, b := raw(t, s, idA), raw(t, s, idB)
	all := raw(t, s, logicalcluster.Wildcard)
	for _, name := range []string{"one", "two", "three"} {
		createConfigMap(t, a, name, "a")
		createConfigMap(t, b, name, "b")
	}
	createConfigMap(t, b, "zebra", "b")

	t.Run("a continue token of another cluster", func(t *testing.T) {
		page, err := b.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 1})
		must(t, err)
		tokens := []string{page.Continue}
		everywhere, err := all.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 1})
		must(t, err)
		tokens = append(tokens, everywhere.Continue)
		for _, start := range []string{"../" + string(idB) + "/default/one\x00", "../" + string(idB) + "/", "..", "/../" + string(idB) + "/default/a", "default/one\x00/../../../" + string(idB) + "/default"} {
			token, err := json.Marshal(map[string]any{"v": "meta.k8s.io/v1", "rv": -1, "start": start})
			must(t, err)
			tokens = append(tokens, base64.RawURLEncoding.EncodeToString(token))
		}
		for _, token := range tokens {
			for _, limit := range []int64{0, 2} {
				// An error is as good as a page of one's own.
				list, err := a.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: limit, Continue: token})
				if err != nil {
					continue
				}
				for _, cm := range list.Items {
					if got := logicalcluster.From(&cm); got != idA {
						t.Errorf("token %q shows %s of cluster %s", token, cm.Name, got)
					}
				}
			}
		}
	})

	t.Run("pages", func(t *testing.T) {
		var names []string
		opts := metav1.ListOptions{Limit: 1}
		for {
			page, err := a.CoreV1().ConfigMaps("default").List(t.Context(), opts)
			must(t, err)
			for _, cm := range page.Items {
				if got := logicalcluster.From(&cm); got != idA {
					t.Errorf("a page shows %s of cluster %s", cm.Name, got)
				}
				names = append(names, cm.Name)
			}
			if opts.Continue = page.Continue; opts.Continue == "" {
				break
			}
			if page.RemainingItemCount != nil && *page.RemainingItemCount > 2 {
				t.Errorf("%d items remain: those of other clusters are counted", *page.RemainingItemCount)
			}
		}
		if diff := cmp.Diff([]string{"one", "three", "two"}, names); diff != "" {
			t.Errorf("pages (-want +got):\n%s", diff)
		}
	})

	t.Run("the index's field is no selector", func(t *testing.T) {
		_, err := a.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{FieldSelector: "kcp.io/cluster=" + string(idB)})
		if !apierrors.IsBadRequest(err) {
			t.Errorf("native kind: %v, want BadRequest", err)
		}
		_, err = s.Clients(t).Locations(idA).List(t.Context(), metav1.ListOptions{FieldSelector: "kcp.io/cluster=" + string(idB)})
		if !apierrors.IsBadRequest(err) {
			t.Errorf("own kind: %v, want BadRequest", err)
		}
	})

	t.Run("a wildcard write touches nothing", func(t *testing.T) {
		before, err := all.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		err = all.CoreV1().ConfigMaps("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		if !apierrors.IsBadRequest(err) {
			t.Errorf("deletecollection: %v, want BadRequest", err)
		}
		_, err = all.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
		if err == nil {
			t.Error("create succeeded")
		}
		_, err = all.CoreV1().ConfigMaps("default").Apply(t.Context(), corev1ac.ConfigMap("x", "default"), metav1.ApplyOptions{FieldManager: "test"})
		if err == nil {
			t.Error("apply succeeded")
		}
		list, err := all.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		if len(list.Items) != len(before.Items) || len(list.Items) < 7 {
			t.Errorf("%d objects, want %d", len(list.Items), len(before.Items))
		}
	})

	t.Run("apply keeps to its cluster", func(t *testing.T) {
		apply := func(c kubernetes.Interface, manager, value string, force bool) error {
			_, err := c.CoreV1().ConfigMaps("default").Apply(t.Context(), corev1ac.ConfigMap("applied", "default").WithData(map[string]string{"value": value}), metav1.ApplyOptions{FieldManager: manager, Force: force})
			return err
		}
		must(t, apply(a, "first", "a", false))
		if err := apply(b, "second", "b", false); err != nil {
			t.Errorf("the same name in another cluster: %v", err)
		}
		if err := apply(a, "second", "changed", false); !apierrors.IsConflict(err) {
			t.Errorf("another manager in the same cluster: %v, want Conflict", err)
		}
		for cluster, c := range map[string]kubernetes.Interface{"a": a, "b": b} {
			cm, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), "applied", metav1.GetOptions{})
			if err != nil || cm.Data["value"] != cluster || len(cm.ManagedFields) != 1 {
				t.Errorf("in %s: %v, %v; want value %q and one manager", cluster, cm, err, cluster)
			}
		}
	})

	t.Run("events, which have no watch cache", func(t *testing.T) {
		event := func(c kubernetes.Interface) {
			_, err := c.CoreV1().Events("default").Create(t.Context(), &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"}}, metav1.CreateOptions{})
			must(t, err)
		}
		w, err := a.CoreV1().Events("").Watch(t.Context(), metav1.ListOptions{})
		must(t, err)
		defer w.Stop()
		event(b)
		event(a)
		select {
		case e := <-w.ResultChan():
			if got := logicalcluster.From(e.Object.(*corev1.Event)); got != idA {
				t.Errorf("the first event is of cluster %s", got)
			}
		case <-time.After(30 * time.Second):
			t.Error("no event")
		}
		list, err := a.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("%d events, %v; want 1", len(list.Items), err)
		}
		everywhere, err := all.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(everywhere.Items) != 2 {
			t.Errorf("%d events in all clusters, %v; want 2", len(everywhere.Items), err)
		}
	})

	t.Run("names and generated names", func(t *testing.T) {
		for _, c := range []kubernetes.Interface{a, b} {
			_, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "..", Namespace: "default"}}, metav1.CreateOptions{})
			if !apierrors.IsInvalid(err) {
				t.Errorf("a name of dots: %v, want Invalid", err)
			}
		}
	})
}
