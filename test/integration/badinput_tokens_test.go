package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/13eedeaf/kcp/pkg/server/options"
	"github.com/13eedeaf/kcp/test/framework"
)

// issuer is an OpenID issuer that signs whatever a test wants.
type issuer struct {
	t      *testing.T
	server *httptest.Server
	key    *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	i := &issuer{t: t, key: key}
	answer := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v)
		}
	}
	mux := http.NewServeMux()
	i.server = httptest.NewTLSServer(mux)
	t.Cleanup(i.server.Close)
	mux.Handle("/.well-known/openid-configuration", answer(map[string]any{
		"issuer": i.server.URL, "jwks_uri": i.server.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"},
	}))
	mux.Handle("/keys", answer(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig"}}}))
	return i
}

// configuration trusts the issuer for audience kcp.
func (i *issuer) configuration() string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw})
	return fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: %s
    audiences: [kcp]
    certificateAuthority: |
      %s
  claimMappings:
    username: {claim: sub, prefix: "oidc:"}
`, i.server.URL, strings.ReplaceAll(strings.TrimSpace(string(ca)), "\n", "\n      "))
}

// sign returns an ID token of alice that is good for an hour, but for what change does.
func (i *issuer) sign(change func(claims map[string]any)) string {
	i.t.Helper()
	now := time.Now()
	claims := map[string]any{
		"iss": i.server.URL, "aud": "kcp", "sub": "alice", "iat": now.Add(-time.Hour).Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	change(claims)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: "k"}}, nil)
	must(i.t, err)
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	must(i.t, err)
	return token
}

// TestIDTokens: the token of a configured issuer lets in while it is good; one that has
// expired, or that is another issuer's or another client's, gets 401 and changes nothing.
func TestIDTokens(t *testing.T) {
	trusted, other := newIssuer(t), newIssuer(t)
	file := write(t, trusted.configuration(), t.TempDir(), "authn.yaml")
	s := framework.Start(t, func(o *options.Options) { o.AuthenticationConfig = file })
	alice := bearer(t, s, trusted.sign(func(map[string]any) {}))
	// The keys of an issuer are fetched once the server runs.
	framework.Eventually(t, "the issuer is known", func(context.Context) (bool, string) {
		r := alice.do(http.MethodGet, "/services/home", "")
		return r.code == http.StatusOK, r.body
	})
	own, _ := alice.home()
	maps := alice.kube(own).CoreV1().ConfigMaps("default")
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
	must(t, err)
	at := "/clusters/" + string(own) + "/api/v1/namespaces/default/configmaps"

	wantRefused := func(t *testing.T, token string) {
		t.Helper()
		p := bearer(t, s, token)
		for what, r := range map[string]response{
			"read":        p.do(http.MethodGet, at+"/kept", ""),
			"create":      p.do(http.MethodPost, at, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"}}`),
			"delete":      p.do(http.MethodDelete, at+"/kept", ""),
			"enter root":  p.do(http.MethodGet, "/clusters/root/api/v1/namespaces", ""),
			"make a home": p.do(http.MethodGet, "/services/home", ""),
			"who am I":    p.do(http.MethodPost, "/clusters/"+string(own)+"/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`),
		} {
			if r.code != http.StatusUnauthorized || r.status.Reason != metav1.StatusReasonUnauthorized || r.status.Message != "Unauthorized" {
				t.Errorf("%s: %d %.300s, want a Status with 401 Unauthorized", what, r.code, r.body)
			}
		}
		if _, err := maps.Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
			t.Errorf("what was there: %v", err)
		}
		if _, err := maps.Get(t.Context(), "new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("what was not there: %v, want NotFound", err)
		}
	}
	for name, token := range map[string]string{
		"expired":                    trusted.sign(func(c map[string]any) { c["exp"] = time.Now().Add(-time.Minute).Unix() }),
		"without an end":             trusted.sign(func(c map[string]any) { delete(c, "exp") }),
		"not valid yet":              trusted.sign(func(c map[string]any) { c["nbf"] = time.Now().Add(30 * time.Minute).Unix() }),
		"another audience":           trusted.sign(func(c map[string]any) { c["aud"] = "another-client" }),
		"no audience":                trusted.sign(func(c map[string]any) { delete(c, "aud") }),
		"another issuer":             other.sign(func(map[string]any) {}),
		"another that says it is it": other.sign(func(c map[string]any) { c["iss"] = trusted.server.URL }),
		"no subject":                 trusted.sign(func(c map[string]any) { delete(c, "sub") }),
	} {
		t.Run(name, func(t *testing.T) { wantRefused(t, token) })
	}

	t.Run("one that expires in use", func(t *testing.T) {
		short := trusted.sign(func(c map[string]any) { c["exp"] = time.Now().Add(5 * time.Second).Unix() })
		p := bearer(t, s, short)
		if r := p.do(http.MethodGet, at+"/kept", ""); r.code != http.StatusOK {
			t.Fatalf("while it is good: %d %s", r.code, r.body)
		}
		framework.Eventually(t, "it is refused once it has expired", func(context.Context) (bool, string) {
			r := p.do(http.MethodGet, at+"/kept", "")
			return r.code == http.StatusUnauthorized, fmt.Sprint(r.code)
		})
		wantRefused(t, short)
	})
	t.Run("a good one still lets in", func(t *testing.T) {
		if r := alice.do(http.MethodGet, at+"/kept", ""); r.code != http.StatusOK {
			t.Errorf("%d %s", r.code, r.body)
		}
	})
}
