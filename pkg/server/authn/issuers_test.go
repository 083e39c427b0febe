package authn_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/13eedeaf/kcp/pkg/atomicfile"
	"github.com/13eedeaf/kcp/pkg/idp"
	"github.com/13eedeaf/kcp/pkg/server/authn"
	"github.com/13eedeaf/kcp/pkg/server/pki"
)

// provider is a running OpenID Provider with the user alice in group dev.
type provider struct {
	*idp.Provider
	server *httptest.Server
	url    string
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	var handler atomic.Pointer[http.Handler]
	p := &provider{server: httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*handler.Load()).ServeHTTP(w, r)
	}))}
	t.Cleanup(p.server.Close)
	p.url = p.server.URL + "/idp"
	dir := t.TempDir()
	if err := idp.AddUser(filepath.Join(dir, idp.UsersFile), "alice", "alice@example.com", []string{"dev"}, "correct horse"); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.Provider, err = idp.New(idp.Options{Issuer: p.url, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	h := p.Handler()
	handler.Store(&h)
	return p
}

var hiddenRE = regexp.MustCompile(`name="(csrf|id)" value="([^"]*)"`)

// signIn returns an ID token for alice.
func (p *provider) signIn(t *testing.T) string {
	t.Helper()
	ctx := oidc.ClientContext(t.Context(), p.server.Client())
	discovered, err := oidc.NewProvider(ctx, p.url)
	if err != nil {
		t.Fatal(err)
	}
	config := oauth2.Config{ClientID: idp.ClientID, Endpoint: discovered.Endpoint(), RedirectURL: "http://127.0.0.1:1/callback", Scopes: idp.Scopes}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Transport: p.server.Client().Transport, Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), config.RedirectURL) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	verifier := oauth2.GenerateVerifier()
	page, err := browser.Get(config.AuthCodeURL("s", oauth2.S256ChallengeOption(verifier)))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(page.Body)
	if err != nil {
		t.Fatal(err)
	}
	form := url.Values{"username": {"alice"}, "password": {"correct horse"}}
	for _, m := range hiddenRE.FindAllStringSubmatch(string(body), -1) {
		form.Set(m[1], m[2])
	}
	done, err := browser.PostForm(p.url+"/login", form)
	if err != nil {
		t.Fatal(err)
	}
	location, err := done.Location()
	if err != nil {
		t.Fatalf("no redirect with a code: %v", err)
	}
	token, err := config.Exchange(ctx, location.Query().Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := token.Extra("id_token").(string)
	return raw
}

func (p *provider) embedded() *authn.EmbeddedIssuer {
	return &authn.EmbeddedIssuer{URL: p.url, ClientID: idp.ClientID, Transport: p.Transport()}
}

// entry is one issuer of a configuration file.
func (p *provider) entry(mapping string) string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	return fmt.Sprintf(`- issuer:
    url: %s
    audiences: [kcp]
    certificateAuthority: |
      %s
  claimMappings:
    username: %s
    groups: {claim: groups, prefix: "corp:"}
    extra: [{key: authentication.kcp.io/cluster-name, valueExpression: "'aaaaaaaaaaaaaaaa'"}]
`, p.url, strings.ReplaceAll(strings.TrimSpace(string(ca)), "\n", "\n      "), mapping)
}

func configuration(entries ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n" + strings.Join(entries, "")
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "authn.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestEmbeddedIssuer uses a token the moment New has returned: nothing may be
// initializing then.
func TestEmbeddedIssuer(t *testing.T) {
	p := newProvider(t)
	token := p.signIn(t)
	s := newServer(t, func(c *authn.Config) { c.Embedded = p.embedded() })
	for _, path := range []string{"/clusters/" + string(clusterA) + "/api", "/services/home", "/clusters/" + string(clusterB) + "/api"} {
		status, got := s.get(t, path, token)
		if status != http.StatusOK {
			t.Fatalf("GET %s = %d, want 200", path, status)
		}
		want := answer{
			Name:   "oidc:alice",
			UID:    got.UID,
			Groups: []string{"oidc:dev", "system:authenticated"},
			Issuer: p.url,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("user at %s (-want +got):\n%s", path, diff)
		}
		if len(got.UID) != 32 {
			t.Errorf("UID = %q, want the sub", got.UID)
		}
	}
}

func TestEmbeddedIssuerDoesNotAnswer(t *testing.T) {
	p := newProvider(t)
	embedded := p.embedded()
	embedded.Transport = http.NewFileTransport(http.Dir(t.TempDir()))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := authn.New(ctx, authn.Config{Embedded: embedded, Audiences: authenticator.Audiences{issuer}})
	if err == nil || !strings.Contains(err.Error(), "issuers have not answered") {
		t.Errorf("error = %v, want one that says the issuer has not answered", err)
	}
}

func TestFileIsReloaded(t *testing.T) {
	p := newProvider(t)
	file := writeFile(t, configuration(p.entry(`{claim: preferred_username, prefix: "one:"}`)))
	s := newServer(t, func(c *authn.Config) { c.File = file })
	path := "/clusters/" + string(clusterA) + "/api"

	// The issuer is contacted in the background, so the first answers may be 401.
	waitForUser := func(want answer) {
		t.Helper()
		var last answer
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 45*time.Second, true, func(ctx context.Context) (bool, error) {
			var status int
			// A new token each time: a known one is answered from the cache, by the old rules.
			status, last = s.get(t, path, p.signIn(t))
			last.UID = ""
			return status == http.StatusOK && cmp.Equal(want, last), nil
		})
		if err != nil {
			t.Fatalf("user (-want +got):\n%s", cmp.Diff(want, last))
		}
	}
	want := answer{Name: "one:alice", Groups: []string{"corp:dev", "system:authenticated"}, Issuer: p.url}
	waitForUser(want)

	if err := atomicfile.Write(file, []byte(configuration(p.entry(`{claim: preferred_username, prefix: "two:"}`))), 0o600); err != nil {
		t.Fatal(err)
	}
	want.Name = "two:alice"
	waitForUser(want)
}

// TestIssuersAreKeptApart: no issuer may name the users of another.
func TestIssuersAreKeptApart(t *testing.T) {
	embedded, other := newProvider(t), newProvider(t)
	cases := map[string]struct {
		mapping   string
		wantError string // at New
		want      int    // for the other issuer's token
	}{
		"own prefix":             {mapping: `{claim: preferred_username, prefix: "corp:"}`, want: http.StatusOK},
		"no prefix":              {mapping: `{claim: preferred_username, prefix: ""}`, wantError: "overlap"},
		"the embedded one's":     {mapping: `{claim: preferred_username, prefix: "oidc:"}`, wantError: "overlap"},
		"beginning of another's": {mapping: `{claim: preferred_username, prefix: "oidc:a"}`, wantError: "overlap"},
		"expression, own name":   {mapping: `{expression: "'corp:' + claims.preferred_username"}`, want: http.StatusOK},
		"expression, other's":    {mapping: `{expression: "'oidc:' + claims.preferred_username"}`, want: http.StatusUnauthorized},
		"service account":        {mapping: `{expression: "'system:serviceaccount:ns:sa'"}`, want: http.StatusUnauthorized},
	}
	token := other.signIn(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			config := authn.Config{
				Embedded:  embedded.embedded(),
				File:      writeFile(t, configuration(other.entry(tc.mapping))),
				Audiences: authenticator.Audiences{issuer},
			}
			if tc.wantError != "" {
				if _, err := authn.New(t.Context(), config); err == nil || !strings.Contains(err.Error(), tc.wantError) {
					t.Fatalf("New: error = %v, want %q", err, tc.wantError)
				}
				return
			}
			s := newServer(t, func(c *authn.Config) { c.Embedded, c.File = config.Embedded, config.File })
			path := "/clusters/" + string(clusterA) + "/api"
			if tc.want == http.StatusUnauthorized {
				// That the issuer is initialized shows only in the error, which is not sent.
				auth, err := authn.New(t.Context(), config)
				if err != nil {
					t.Fatal(err)
				}
				waitForError(t, auth, token, "cannot vouch for")
				if got, _ := s.get(t, path, token); got != tc.want {
					t.Errorf("status = %d, want %d", got, tc.want)
				}
				return
			}
			var got answer
			err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
				var status int
				status, got = s.get(t, path, token)
				return status == tc.want, nil
			})
			if err != nil {
				t.Fatalf("never %d", tc.want)
			}
			got.UID = ""
			// The file maps the reserved key of service accounts, which must be dropped.
			want := answer{Name: "corp:alice", Groups: []string{"corp:dev", "system:authenticated"}, Issuer: other.url}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("user (-want +got):\n%s", diff)
			}
		})
	}
}

func waitForError(t *testing.T, auth authenticator.Request, token, want string) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://kcp.example.com/api", nil)
		if err != nil {
			return false, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		_, ok, err := auth.AuthenticateRequest(req)
		last = err
		return !ok && err != nil && strings.Contains(err.Error(), want), nil
	})
	if err != nil {
		t.Fatalf("error = %v, want %q", last, want)
	}
}

func TestServiceAccountIssuerIsReserved(t *testing.T) {
	p := newProvider(t)
	file := writeFile(t, configuration(strings.ReplaceAll(p.entry(`{claim: preferred_username, prefix: "corp:"}`), p.url, issuer)))
	_, err := authn.New(t.Context(), authn.Config{
		File:            file,
		ServiceAccounts: &authn.ServiceAccounts{Issuer: issuer, Keys: []any{newKey(t)}, Getter: &objects{}},
		Audiences:       authenticator.Audiences{issuer},
	})
	if err == nil || !strings.Contains(err.Error(), issuer) {
		t.Errorf("error = %v, want one that names the reserved issuer", err)
	}
}

func TestClientCertificates(t *testing.T) {
	keys, err := pki.Ensure(pki.Options{Dir: filepath.Join(t.TempDir(), "pki")})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", keys.ClientCAFile)
	if err != nil {
		t.Fatal(err)
	}
	auth, err := authn.New(t.Context(), authn.Config{ClientCA: ca, Audiences: authenticator.Audiences{issuer}})
	if err != nil {
		t.Fatal(err)
	}
	type identity struct {
		User   string
		Groups []string
	}
	var got identity
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resp, ok, err := auth.AuthenticateRequest(r)
		if err != nil || !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		got = identity{User: resp.User.GetName(), Groups: resp.User.GetGroups()}
	}))
	serving, err := tls.LoadX509KeyPair(keys.ServingCertFile, keys.ServingKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{serving}, ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	defer server.Close()

	pair := func(c pki.ClientCert) tls.Certificate {
		p, err := tls.X509KeyPair(c.CertPEM, c.KeyPEM)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, tc := range map[string]struct {
		cert       tls.Certificate
		want       identity
		wantStatus int
	}{
		"admin":                   {cert: pair(keys.Admin), want: identity{"kcp-admin", []string{"system:masters", "system:authenticated"}}, wantStatus: http.StatusOK},
		"gateway":                 {cert: pair(keys.Gateway), want: identity{"kcp-gateway", []string{"system:kcp:gateways", "system:authenticated"}}, wantStatus: http.StatusOK},
		"certificate of a server": {cert: serving, wantStatus: http.StatusUnauthorized},
		"none":                    {wantStatus: http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			got = identity{}
			config := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			config.RootCAs.AddCert(keys.CA)
			if tc.cert.Certificate != nil {
				config.Certificates = []tls.Certificate{tc.cert}
			}
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
			resp, err := client.Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			if err := resp.Body.Close(); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tc.wantStatus {
				t.Errorf("status = %d, want %d", resp.StatusCode, tc.wantStatus)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("identity (-want +got):\n%s", diff)
			}
		})
	}
}
