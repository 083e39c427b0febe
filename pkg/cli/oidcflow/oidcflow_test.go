package oidcflow

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// issuer is a provider that can misbehave.
type issuer struct {
	*httptest.Server
	signer jose.Signer
	// claims change what a right ID token says; answer replaces the token endpoint's
	// answer.
	claims func(map[string]any)
	answer func(w http.ResponseWriter)
	nonce  string
	// device is the answer to the request for a code; nil means that there is no such
	// endpoint.
	device map[string]any
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{}
	if i.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, nil); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)
	reply := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Error(err)
		}
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		document := map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
			"jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"},
		}
		if i.device != nil {
			document["device_authorization_endpoint"] = i.URL + "/device_authorization"
		}
		reply(w, document)
	})
	mux.HandleFunc("/device_authorization", func(w http.ResponseWriter, _ *http.Request) { reply(w, i.device) })
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), Algorithm: "RS256", Use: "sig"}}})
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, _ *http.Request) {
		if i.answer != nil {
			i.answer(w)
			return
		}
		claims := map[string]any{
			"iss": i.URL, "aud": "kcp", "sub": "s1", "email": "a@example.com", "nonce": i.nonce,
			"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
		}
		if i.claims != nil {
			i.claims(claims)
		}
		data, err := json.Marshal(claims)
		if err != nil {
			t.Error(err)
		}
		signed, err := i.signer.Sign(data)
		if err != nil {
			t.Error(err)
		}
		token, err := signed.CompactSerialize()
		if err != nil {
			t.Error(err)
		}
		reply(w, map[string]any{"access_token": "a", "token_type": "Bearer", "refresh_token": "r", "id_token": token})
	})
	return i
}

// visit is a browser that is sent straight back with a code.
func (i *issuer) visit(t *testing.T, page string) {
	u, err := url.Parse(page)
	if err != nil {
		t.Error(err)
		return
	}
	q := u.Query()
	i.nonce = q.Get("nonce")
	if q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" || i.nonce == "" || q.Get("state") == "" {
		t.Errorf("the login page's address lacks PKCE, nonce or state: %s", page)
	}
	resp, err := http.Get(q.Get("redirect_uri") + "?code=c&state=" + url.QueryEscape(q.Get("state")))
	if err != nil {
		t.Error(err)
		return
	}
	_ = resp.Body.Close()
}

func TestLogin(t *testing.T) {
	for name, tc := range map[string]struct {
		claims  func(map[string]any)
		answer  func(http.ResponseWriter)
		wantErr string
	}{
		"right":          {},
		"another nonce":  {claims: func(c map[string]any) { c["nonce"] = "other" }, wantErr: "its nonce differs"},
		"no nonce":       {claims: func(c map[string]any) { delete(c, "nonce") }, wantErr: "its nonce differs"},
		"other audience": {claims: func(c map[string]any) { c["aud"] = "other" }, wantErr: "its ID token is not valid"},
		"other issuer":   {claims: func(c map[string]any) { c["iss"] = "https://other" }, wantErr: "its ID token is not valid"},
		"expired":        {claims: func(c map[string]any) { c["exp"] = 1 }, wantErr: "its ID token is not valid"},
		"no ID token": {answer: func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"access_token":"a","token_type":"Bearer"}`))
		}, wantErr: "gave no ID token"},
		"refused": {answer: func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"invalid_request","error_description":"SECRET is wrong"}`))
		}, wantErr: "cannot trade the login for a token: invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIssuer(t)
			i.claims, i.answer = tc.claims, tc.answer
			p, err := Discover(t.Context(), i.Client(), i.URL, "kcp", time.Now)
			if err != nil {
				t.Fatal(err)
			}
			tokens, err := p.Login(t.Context(), AuthCode{Ports: []int{0}, Scopes: []string{"openid"}, Present: func(page string) { go i.visit(t, page) }})
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("err is %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tokens.Subject != "s1" || tokens.Name != "a@example.com" || tokens.RefreshToken != "r" || tokens.IDToken == "" || tokens.Expiry.IsZero() {
				t.Errorf("tokens are %+v", tokens)
			}
		})
	}
}

func TestRefresh(t *testing.T) {
	fail := func(code int, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, tc := range map[string]struct {
		answer       func(http.ResponseWriter)
		wantRejected bool
		wantErr      string
	}{
		"right":             {},
		"token is used up":  {answer: fail(http.StatusBadRequest, `{"error":"invalid_grant"}`), wantRejected: true},
		"issuer is broken":  {answer: fail(http.StatusInternalServerError, `oops`), wantErr: "cannot refresh the token: 500"},
		"issuer is limited": {answer: fail(http.StatusTooManyRequests, `{"error":"slow_down"}`), wantErr: "cannot refresh the token: slow_down"},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIssuer(t)
			i.answer = tc.answer
			p, err := Discover(t.Context(), i.Client(), i.URL, "kcp", time.Now)
			if err != nil {
				t.Fatal(err)
			}
			tokens, err := p.Refresh(t.Context(), "old")
			switch {
			case tc.wantRejected != errors.Is(err, ErrRejected):
				t.Errorf("err is %v, want rejected: %v", err, tc.wantRejected)
			case tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)):
				t.Errorf("err is %v, want %q", err, tc.wantErr)
			case tc.wantErr == "" && !tc.wantRejected && (err != nil || tokens.RefreshToken != "r"):
				t.Errorf("got %+v, %v", tokens, err)
			}
		})
	}
}

func TestDiscover(t *testing.T) {
	i := newIssuer(t)
	for _, issuer := range []string{"http://plain.example.com", "nonsense", i.URL + "/other"} {
		if _, err := Discover(t.Context(), i.Client(), issuer, "kcp", time.Now); err == nil {
			t.Errorf("issuer %q was accepted", issuer)
		}
	}
}
