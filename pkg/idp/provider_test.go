package idp_test

import (
	"context"
	"errors"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"

	"github.com/13eedeaf/kcp/pkg/idp"
)

const password = "correct horse"

// fixture is a provider behind a real TLS listener, and a client of it.
type fixture struct {
	t       *testing.T
	dir     string
	issuer  string
	handler atomic.Pointer[http.Handler]
	server  *httptest.Server
	clock   atomic.Int64 // added to the real time

	ctx      context.Context // carries the TLS client
	provider *oidc.Provider
	config   oauth2.Config
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir()}
	f.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*f.handler.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(f.server.Close)
	f.issuer = f.server.URL + "/idp"
	if err := idp.AddUser(filepath.Join(f.dir, idp.UsersFile), "alice", "alice@example.com", []string{"dev", "ops"}, password); err != nil {
		t.Fatalf("AddUser: %v", err)
	}
	f.restart()

	f.ctx = oidc.ClientContext(t.Context(), f.server.Client())
	var err error
	if f.provider, err = oidc.NewProvider(f.ctx, f.issuer); err != nil {
		t.Fatalf("discovery: %v", err)
	}
	f.config = oauth2.Config{
		ClientID:    idp.ClientID,
		Endpoint:    f.provider.Endpoint(),
		RedirectURL: "http://127.0.0.1:43210/callback",
		Scopes:      idp.Scopes,
	}
	return f
}

// restart makes a new provider over the same files, as a new process does.
func (f *fixture) restart() {
	f.t.Helper()
	p, err := idp.New(idp.Options{
		Issuer:     f.issuer,
		Dir:        f.dir,
		DevicePoll: time.Second,
		Now:        func() time.Time { return time.Now().Add(time.Duration(f.clock.Load())) },
	})
	if err != nil {
		f.t.Fatalf("New: %v", err)
	}
	handler := p.Handler()
	f.handler.Store(&handler)
}

// browser follows redirects inside the provider and stops at the client's.
func (f *fixture) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return &http.Client{
		Transport: f.server.Client().Transport,
		Jar:       jar,
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			if !strings.HasPrefix(r.URL.String(), f.issuer) {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
}

var inputRE = regexp.MustCompile(`<input[^>]*name="([^"]+)"[^>]*value="([^"]*)"`)

// page is an answer and the values of its form's fields.
type page struct {
	status   int
	location string
	body     string
	action   string
	fields   url.Values
}

func (f *fixture) read(resp *http.Response, err error) page {
	f.t.Helper()
	if err != nil {
		f.t.Fatalf("request: %v", err)
	}
	body, readErr := io.ReadAll(resp.Body)
	if err := errors.Join(readErr, resp.Body.Close()); err != nil {
		f.t.Fatal(err)
	}
	p := page{status: resp.StatusCode, location: resp.Header.Get("Location"), body: string(body), fields: url.Values{}}
	for _, m := range inputRE.FindAllStringSubmatch(p.body, -1) {
		p.fields.Set(m[1], html.UnescapeString(m[2]))
	}
	if m := regexp.MustCompile(`<form method="post" action="([^"]+)"`).FindStringSubmatch(p.body); m != nil {
		p.action = f.server.URL + m[1]
	}
	return p
}

func (f *fixture) submit(b *http.Client, p page, values map[string]string) page {
	f.t.Helper()
	for k, v := range values {
		p.fields.Set(k, v)
	}
	return f.read(b.PostForm(p.action, p.fields))
}

// signIn does the whole code flow and returns what the code was exchanged for.
func (f *fixture) signIn(username string) (*oauth2.Token, error) {
	f.t.Helper()
	verifier := oauth2.GenerateVerifier()
	b := f.browser()
	form := f.read(b.Get(f.config.AuthCodeURL("state-1", oauth2.S256ChallengeOption(verifier), oidc.Nonce("nonce-1"))))
	return f.config.Exchange(f.ctx, f.code(f.submit(b, form, map[string]string{"username": username, "password": password})), oauth2.VerifierOption(verifier))
}

// code reads the code from the redirect to the client.
func (f *fixture) code(p page) string {
	f.t.Helper()
	u, err := url.Parse(p.location)
	if err != nil || !strings.HasPrefix(p.location, f.config.RedirectURL+"?") {
		f.t.Fatalf("answer %d leads to %q (%v), want the client; page:\n%s", p.status, p.location, err, p.body)
	}
	if diff := cmp.Diff("state-1", u.Query().Get("state")); diff != "" {
		f.t.Errorf("state (-want +got):\n%s", diff)
	}
	return u.Query().Get("code")
}

type claims struct {
	Subject           string   `json:"sub"`
	Email             string   `json:"email"`
	EmailVerified     bool     `json:"email_verified"`
	PreferredUsername string   `json:"preferred_username"`
	Name              string   `json:"name"`
	Groups            []string `json:"groups"`
}

func (f *fixture) claims(token *oauth2.Token) claims {
	f.t.Helper()
	raw, _ := token.Extra("id_token").(string)
	idToken, err := f.provider.Verifier(&oidc.Config{ClientID: idp.ClientID}).Verify(f.ctx, raw)
	if err != nil {
		f.t.Fatalf("ID token: %v", err)
	}
	if left := time.Until(idToken.Expiry); left < 59*time.Minute || left > 61*time.Minute {
		f.t.Errorf("ID token is valid for %v, want 1h", left)
	}
	var c claims
	if err := idToken.Claims(&c); err != nil {
		f.t.Fatal(err)
	}
	return c
}

// wantInvalidGrant checks for the OAuth error that makes a client sign in again.
func wantInvalidGrant(t *testing.T, what string, err error) {
	t.Helper()
	var retrieve *oauth2.RetrieveError
	if !errors.As(err, &retrieve) || retrieve.ErrorCode != "invalid_grant" {
		t.Errorf("%s: error = %v, want invalid_grant", what, err)
	}
}

func TestCodeFlow(t *testing.T) {
	f := newFixture(t)
	token, err := f.signIn("alice")
	if err != nil {
		t.Fatalf("sign-in: %v", err)
	}
	got := f.claims(token)
	if len(got.Subject) != 32 {
		t.Errorf("sub = %q, want 32 hexadecimal digits", got.Subject)
	}
	want := claims{
		Subject:           got.Subject,
		Email:             "alice@example.com",
		EmailVerified:     true,
		PreferredUsername: "alice",
		Name:              "alice",
		Groups:            []string{"dev", "ops"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	info, err := f.provider.UserInfo(f.ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		t.Fatalf("userinfo: %v", err)
	}
	if diff := cmp.Diff(got.Subject, info.Subject); diff != "" {
		t.Errorf("userinfo sub (-want +got):\n%s", diff)
	}

	f.restart()
	again, err := f.signIn("alice")
	if err != nil {
		t.Fatalf("second sign-in: %v", err)
	}
	if diff := cmp.Diff(got, f.claims(again)); diff != "" {
		t.Errorf("claims after a restart (-first +second):\n%s", diff)
	}
}

func TestCodeIsBoundToItsVerifierAndWorksOnce(t *testing.T) {
	f := newFixture(t)
	start := func() (string, string) {
		verifier := oauth2.GenerateVerifier()
		b := f.browser()
		form := f.read(b.Get(f.config.AuthCodeURL("state-1", oauth2.S256ChallengeOption(verifier))))
		return f.code(f.submit(b, form, map[string]string{"username": "alice", "password": password})), verifier
	}

	code, verifier := start()
	_, err := f.config.Exchange(f.ctx, code, oauth2.VerifierOption(oauth2.GenerateVerifier()))
	wantInvalidGrant(t, "wrong verifier", err)
	_, err = f.config.Exchange(f.ctx, code, oauth2.VerifierOption(verifier))
	wantInvalidGrant(t, "code after a wrong verifier", err)

	code, _ = start()
	if _, err := f.config.Exchange(f.ctx, code); err == nil {
		t.Errorf("exchange without a verifier succeeded")
	}

	code, verifier = start()
	if _, err := f.config.Exchange(f.ctx, code, oauth2.VerifierOption(verifier)); err != nil {
		t.Fatalf("exchange: %v", err)
	}
	_, err = f.config.Exchange(f.ctx, code, oauth2.VerifierOption(verifier))
	wantInvalidGrant(t, "code used twice", err)

	code, verifier = start()
	f.clock.Add(int64(2 * time.Minute))
	_, err = f.config.Exchange(f.ctx, code, oauth2.VerifierOption(verifier))
	wantInvalidGrant(t, "code after two minutes", err)
}

func TestAuthorizationRefused(t *testing.T) {
	f := newFixture(t)
	verifier := oauth2.GenerateVerifier()
	cases := map[string]struct {
		redirect string
		options  []oauth2.AuthCodeOption
		// wantError is the OAuth error at the redirect; empty when nothing may be sent there.
		wantError string
	}{
		"no PKCE":            {redirect: f.config.RedirectURL, wantError: "invalid_request"},
		"plain PKCE":         {redirect: f.config.RedirectURL, options: []oauth2.AuthCodeOption{oauth2.SetAuthURLParam("code_challenge", verifier)}, wantError: "invalid_request"},
		"implicit flow":      {redirect: f.config.RedirectURL, options: []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(verifier), oauth2.SetAuthURLParam("response_type", "id_token")}, wantError: "unauthorized_client"},
		"prompt none":        {redirect: f.config.RedirectURL, options: []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(verifier), oauth2.SetAuthURLParam("prompt", "none")}, wantError: "login_required"},
		"redirect elsewhere": {redirect: "https://evil.example.com/callback", options: []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(verifier)}},
		"other path":         {redirect: "http://127.0.0.1:43210/other", options: []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(verifier)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			config := f.config
			config.RedirectURL = tc.redirect
			got := f.read(f.browser().Get(config.AuthCodeURL("state-1", tc.options...)))
			if got.action != "" {
				t.Fatalf("the sign-in form was shown")
			}
			if tc.wantError == "" {
				if got.status != http.StatusBadRequest || got.location != "" {
					t.Errorf("answer = %d to %q, want 400 and no redirect", got.status, got.location)
				}
				return
			}
			u, err := url.Parse(got.location)
			if err != nil {
				t.Fatal(err)
			}
			values := u.Query()
			if u.Fragment != "" {
				values, _ = url.ParseQuery(u.Fragment)
			}
			if diff := cmp.Diff(tc.wantError, values.Get("error")); diff != "" {
				t.Errorf("error (-want +got):\n%s%s", diff, got.location)
			}
		})
	}
	// Any port of the loopback address is right (RFC 8252, section 7.3).
	f.config.RedirectURL = "http://127.0.0.1:1/callback"
	if _, err := f.signIn("alice"); err != nil {
		t.Errorf("another port: %v", err)
	}
}

func TestWrongPassword(t *testing.T) {
	f := newFixture(t)
	b := f.browser()
	form := f.read(b.Get(f.config.AuthCodeURL("state-1", oauth2.S256ChallengeOption(oauth2.GenerateVerifier()))))
	for name, values := range map[string]map[string]string{
		"known user":   {"username": "alice", "password": "wrong"},
		"unknown user": {"username": "nobody", "password": password},
	} {
		got := f.submit(b, form, values)
		if got.status != http.StatusUnauthorized || !strings.Contains(got.body, `role="alert">The user name or the password is wrong.`) {
			t.Errorf("%s: answer %d, want 401 with the one message; page:\n%s", name, got.status, got.body)
		}
	}
	callback := f.issuer + "/authorize/callback?id=" + url.QueryEscape(form.fields.Get("id"))
	if got := f.read(b.Get(callback)); strings.Contains(got.location, "code=") {
		t.Errorf("a code was given out before the sign-in: %q", got.location)
	}

	// Guessing is slowed down, for the right password too, and for this name only.
	for range 5 {
		form = f.submit(b, form, map[string]string{"username": "alice", "password": "wrong"})
	}
	got := f.submit(b, form, map[string]string{"username": "alice", "password": password})
	if got.status != http.StatusTooManyRequests {
		t.Errorf("answer after six wrong passwords = %d, want 429", got.status)
	}
	got = f.submit(b, form, map[string]string{"username": "bob", "password": "wrong"})
	if got.status != http.StatusUnauthorized {
		t.Errorf("answer for another name = %d, want 401", got.status)
	}
	f.clock.Add(int64(time.Minute))
	if got = f.submit(b, form, map[string]string{"username": "Alice ", "password": password}); f.code(got) == "" {
		t.Errorf("no code after the wait")
	}
}

func TestSignInBelongsToOneBrowser(t *testing.T) {
	f := newFixture(t)
	mine, other := f.browser(), f.browser()
	form := f.read(mine.Get(f.config.AuthCodeURL("state-1", oauth2.S256ChallengeOption(oauth2.GenerateVerifier()))))
	id := url.QueryEscape(form.fields.Get("id"))

	// Someone who was sent the link, with cookies of their own.
	f.read(other.Get(f.config.AuthCodeURL("state-1", oauth2.S256ChallengeOption(oauth2.GenerateVerifier()))))
	if got := f.read(other.Get(f.issuer + "/login?id=" + id)); got.status != http.StatusBadRequest || got.action != "" {
		t.Errorf("another browser was shown the form (%d)", got.status)
	}
	values := map[string]string{"username": "alice", "password": password}
	if got := f.submit(other, form, values); got.status != http.StatusBadRequest {
		t.Errorf("another browser's form was taken: %d to %q", got.status, got.location)
	}
	forged := form
	forged.fields = url.Values{"id": form.fields["id"], "csrf": {"forged"}}
	if got := f.submit(mine, forged, values); got.status != http.StatusForbidden {
		t.Errorf("a forged form was taken: %d to %q", got.status, got.location)
	}

	// The one who started it cannot fetch the code that belongs to another browser.
	mine.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if got := f.submit(mine, form, values); got.status != http.StatusSeeOther {
		t.Fatalf("sign-in = %d, want 303; page:\n%s", got.status, got.body)
	}
	callback := f.issuer + "/authorize/callback?id=" + id
	if got := f.read(other.Get(callback)); got.status != http.StatusForbidden || got.location != "" {
		t.Errorf("another browser got %d to %q, want 403", got.status, got.location)
	}
	if got := f.read(mine.Get(callback)); f.code(got) == "" {
		t.Errorf("no code for the right browser")
	}
}

func TestPagesAreLockedDown(t *testing.T) {
	f := newFixture(t)
	resp, err := f.browser().Get(f.issuer + "/device")
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, name := range []string{"Content-Type", "Content-Security-Policy", "Cache-Control", "Referrer-Policy", "X-Frame-Options"} {
		got[name] = resp.Header.Get(name)
	}
	want := map[string]string{
		"Content-Type":            "text/html; charset=utf-8",
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self' http://127.0.0.1:*; frame-ancestors 'none'; base-uri 'none'",
		"Cache-Control":           "no-store",
		"Referrer-Policy":         "no-referrer",
		"X-Frame-Options":         "DENY",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	cookies := resp.Cookies()
	if len(cookies) != 1 || !cookies[0].Secure || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteLaxMode || cookies[0].Path != "/idp" {
		t.Errorf("cookies = %v, want one: secure, http-only, lax, under /idp", cookies)
	}
	style := f.read(f.browser().Get(f.issuer + "/style.css"))
	if style.status != http.StatusOK || !strings.Contains(style.body, "max-width") {
		t.Errorf("style sheet = %d", style.status)
	}
	if got := f.read(f.browser().Get(f.issuer + "/authorize?state=" + strings.Repeat("x", 5000))); got.status != http.StatusRequestURITooLong {
		t.Errorf("a request of 5,000 bytes = %d, want 414", got.status)
	}
}

// TestTransport reads the provider's metadata and keys without any listener.
func TestTransport(t *testing.T) {
	p, err := idp.New(idp.Options{Issuer: "https://kcp.example.invalid:6443/idp", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: p.Transport()}
	provider, err := oidc.NewProvider(oidc.ClientContext(t.Context(), client), "https://kcp.example.invalid:6443/idp")
	if err != nil {
		t.Fatalf("discovery: %v", err)
	}
	if diff := cmp.Diff("https://kcp.example.invalid:6443/idp/oauth/token", provider.Endpoint().TokenURL); diff != "" {
		t.Errorf("token endpoint (-want +got):\n%s", diff)
	}
	var meta struct {
		Keys      string   `json:"jwks_uri"`
		Scopes    []string `json:"scopes_supported"`
		Challenge []string `json:"code_challenge_methods_supported"`
	}
	if err := provider.Claims(&meta); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"S256"}, meta.Challenge); diff != "" {
		t.Errorf("challenge methods (-want +got):\n%s", diff)
	}
	resp, err := client.Get(meta.Keys)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"kty":"RSA"`) {
		t.Errorf("keys = %d %s (%v)", resp.StatusCode, body, err)
	}
}

func TestNewRefusesIssuer(t *testing.T) {
	for _, issuer := range []string{"http://127.0.0.1/idp", "https://127.0.0.1", "https://127.0.0.1/idp/", "/idp"} {
		if _, err := idp.New(idp.Options{Issuer: issuer, Dir: t.TempDir()}); err == nil {
			t.Errorf("New took issuer %q", issuer)
		}
	}
}
