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

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/test/framework"
)

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
		// One that is made under its name is another.
		makeServiceAccount(t, alice.kube(own), "default", "robot")
		if r := bearer(t, s, issue()).do(http.MethodGet, in(own), ""); r.code != http.StatusOK {
			t.Errorf("a token of the new account: %d, want 200", r.code)
		}
		if r := p.do(http.MethodGet, in(own), ""); r.code != http.StatusUnauthorized {
			t.Errorf("a token of the account before: %d, want 401", r.code)
		}
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
