package idp_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"

	"github.com/13eedeaf/kcp/pkg/idp"
)

// refresh exchanges exactly this refresh token.
func (f *fixture) refresh(token string) (*oauth2.Token, error) {
	return f.config.TokenSource(f.ctx, &oauth2.Token{RefreshToken: token}).Token()
}

func TestRefreshSurvivesRestart(t *testing.T) {
	f := newFixture(t)
	first, err := f.signIn("alice")
	if err != nil {
		t.Fatal(err)
	}
	want := f.claims(first)
	f.restart()
	second, err := f.refresh(first.RefreshToken)
	if err != nil {
		t.Fatalf("refresh after a restart: %v", err)
	}
	if diff := cmp.Diff(want, f.claims(second)); diff != "" {
		t.Errorf("claims (-first +second):\n%s", diff)
	}
	if second.RefreshToken == "" || second.RefreshToken == first.RefreshToken {
		t.Errorf("refresh token was not rotated")
	}
	data, err := os.ReadFile(filepath.Join(f.dir, "sessions.json"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), second.RefreshToken) {
		t.Errorf("the file holds a refresh token in the clear")
	}
}

func TestReusedRefreshTokenEndsTheSession(t *testing.T) {
	f := newFixture(t)
	first, err := f.signIn("alice")
	if err != nil {
		t.Fatal(err)
	}
	second, err := f.refresh(first.RefreshToken)
	if err != nil {
		t.Fatal(err)
	}
	// Two commands at once, or an answer that was lost.
	if _, err := f.refresh(first.RefreshToken); err != nil {
		t.Errorf("reuse at once: %v", err)
	}
	f.clock.Add(int64(time.Minute))
	_, err = f.refresh(first.RefreshToken)
	wantInvalidGrant(t, "reuse after a minute", err)
	_, err = f.refresh(second.RefreshToken)
	wantInvalidGrant(t, "successor after a reuse", err)
}

func TestSessionEnds(t *testing.T) {
	cases := map[string]func(t *testing.T, f *fixture, token *oauth2.Token){
		"idle for 31 days": func(_ *testing.T, f *fixture, _ *oauth2.Token) {
			f.clock.Add(int64(31 * 24 * time.Hour))
		},
		"user removed": func(t *testing.T, f *fixture, _ *oauth2.Token) {
			if err := os.WriteFile(filepath.Join(f.dir, idp.UsersFile), []byte("[]\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"revoked": func(t *testing.T, f *fixture, token *oauth2.Token) {
			got := f.read(f.browser().PostForm(f.issuer+"/revoke", map[string][]string{
				"token": {token.RefreshToken}, "token_type_hint": {"refresh_token"}, "client_id": {idp.ClientID},
			}))
			if got.status != http.StatusOK {
				t.Fatalf("revoke = %d %s", got.status, got.body)
			}
		},
	}
	for name, end := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			token, err := f.signIn("alice")
			if err != nil {
				t.Fatal(err)
			}
			end(t, f, token)
			_, err = f.refresh(token.RefreshToken)
			wantInvalidGrant(t, name, err)
			f.restart()
			_, err = f.refresh(token.RefreshToken)
			wantInvalidGrant(t, name+", after a restart", err)
		})
	}
}

func TestDeviceFlow(t *testing.T) {
	f := newFixture(t)
	f.config.Endpoint.DeviceAuthURL = f.issuer + "/device_authorization"
	cases := map[string]struct {
		action    string
		mangle    func(code string) string
		wantError string
	}{
		"allowed": {action: "allow", mangle: func(code string) string { return code }},
		"typed carelessly": {action: "allow", mangle: func(code string) string {
			return " " + strings.ToLower(strings.ReplaceAll(code, "-", ""))
		}},
		"refused": {action: "deny", mangle: func(code string) string { return code }, wantError: "access_denied"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			device, err := f.config.DeviceAuth(f.ctx)
			if err != nil {
				t.Fatalf("device authorization: %v", err)
			}
			if diff := cmp.Diff(f.issuer+"/device", device.VerificationURI); diff != "" {
				t.Errorf("verification URI (-want +got):\n%s", diff)
			}
			b := f.browser()
			form := f.read(b.Get(device.VerificationURIComplete))
			if diff := cmp.Diff(device.UserCode, form.fields.Get("user_code")); diff != "" {
				t.Errorf("code in the form (-want +got):\n%s", diff)
			}
			values := map[string]string{"user_code": tc.mangle(device.UserCode), "username": "alice", "password": "wrong", "action": tc.action}
			if got := f.submit(b, form, values); got.status != http.StatusUnauthorized {
				t.Fatalf("wrong password = %d, want 401", got.status)
			}
			values["password"] = password
			if got := f.submit(b, form, values); got.status != http.StatusOK {
				t.Fatalf("decision = %d; page:\n%s", got.status, got.body)
			}
			if got := f.submit(b, form, values); got.status != http.StatusBadRequest {
				t.Errorf("second decision = %d, want 400", got.status)
			}
			token, err := f.config.DeviceAccessToken(f.ctx, device)
			if tc.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantError) {
					t.Errorf("error = %v, want %q", err, tc.wantError)
				}
				return
			}
			if err != nil {
				t.Fatalf("device token: %v", err)
			}
			if got := f.claims(token); got.PreferredUsername != "alice" || len(got.Subject) != 32 {
				t.Errorf("claims = %+v, want alice and her sub", got)
			}
			if _, err := f.refresh(token.RefreshToken); err != nil {
				t.Errorf("refresh: %v", err)
			}
			if _, err := f.config.DeviceAccessToken(f.ctx, device); err == nil {
				t.Errorf("the device got a second token for one decision")
			}
		})
	}
}
