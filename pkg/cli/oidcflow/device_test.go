package oidcflow

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// refuse answers the token endpoint's requests with these errors in turn, then rightly.
func (i *issuer) refuse(answers ...string) {
	i.answer = func(w http.ResponseWriter) {
		code := http.StatusBadRequest
		if answers[0] == "" {
			code = http.StatusBadGateway
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"error":"` + answers[0] + `"}`))
		if answers = answers[1:]; len(answers) == 0 {
			i.answer = nil
		}
	}
}

func TestLoginByDevice(t *testing.T) {
	right := map[string]any{
		"device_code": "d", "user_code": "BCDF-GHJK", "verification_uri": "https://issuer/device",
		"verification_uri_complete": "https://issuer/device?user_code=BCDF-GHJK", "expires_in": 600, "interval": 1,
	}
	with := func(key string, value any) map[string]any {
		m := maps.Clone(right)
		m[key] = value
		return m
	}
	want := DeviceCode{Page: "https://issuer/device", Code: "BCDF-GHJK", Filled: "https://issuer/device?user_code=BCDF-GHJK"}
	for name, tc := range map[string]struct {
		device   map[string]any
		answers  []string
		wantCode DeviceCode
		wantIs   error
		wantErr  string
		wantAway int
	}{
		"right":           {device: right, wantCode: want},
		"pending":         {device: right, answers: []string{"authorization_pending"}, wantCode: want},
		"away for a time": {device: right, answers: []string{"", ""}, wantCode: want, wantAway: 1},
		"refused":         {device: right, answers: []string{"access_denied"}, wantCode: want, wantErr: "the login was refused"},
		"expired":         {device: right, answers: []string{"expired_token"}, wantCode: want, wantIs: ErrCodeExpired},
		"expired unasked": {device: with("expires_in", 1), answers: []string{"authorization_pending", "authorization_pending"}, wantCode: want, wantIs: ErrCodeExpired},
		"broken":          {device: right, answers: []string{"invalid_grant"}, wantCode: want, wantErr: "cannot trade the code for a token: invalid_grant"},
		"no endpoint":     {wantIs: ErrNoDevice},
		"plain page":      {device: with("verification_uri", "http://issuer/device"), wantErr: "gave no code, or no https page"},
		"no code":         {device: with("user_code", ""), wantErr: "gave no code, or no https page"},
		"control characters": {
			device:   with("user_code", "\x1b[2JBCDF"),
			wantCode: DeviceCode{Page: want.Page, Code: "[2JBCDF", Filled: want.Filled},
		},
		"nothing filled in": {
			device:   with("verification_uri_complete", "javascript:alert(1)"),
			wantCode: DeviceCode{Page: want.Page, Code: want.Code},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the protocol counts in seconds
			i := newIssuer(t)
			i.device = tc.device
			if len(tc.answers) > 0 {
				i.refuse(tc.answers...)
			}
			p, err := Discover(t.Context(), i.Client(), i.URL, "kcp", time.Now)
			if err != nil {
				t.Fatal(err)
			}
			var code DeviceCode
			away := 0
			tokens, err := p.LoginByDevice(t.Context(), Device{
				Scopes:  []string{"openid"},
				Present: func(c DeviceCode) { code = c },
				Away:    func(error) { away++ },
			})
			if diff := cmp.Diff(tc.wantCode, code); diff != "" {
				t.Errorf("code shown (-want +got):\n%s", diff)
			}
			if away != tc.wantAway {
				t.Errorf("told %d times that the issuer is away, want %d", away, tc.wantAway)
			}
			switch {
			case tc.wantIs != nil:
				if !errors.Is(err, tc.wantIs) {
					t.Errorf("err is %v, want %v", err, tc.wantIs)
				}
			case tc.wantErr != "":
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("err is %v, want %q", err, tc.wantErr)
				}
			case err != nil:
				t.Error(err)
			case tokens.Subject != "s1" || tokens.RefreshToken != "r":
				t.Errorf("tokens are of %q with refresh token %q", tokens.Subject, tokens.RefreshToken)
			}
		})
	}
}

// TestDeviceCancelled ends a login while the issuer does not answer.
func TestDeviceCancelled(t *testing.T) {
	i := newIssuer(t)
	i.device = map[string]any{}
	p, err := Discover(t.Context(), i.Client(), i.URL, "kcp", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	asked, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	p.client = &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		close(asked)
		<-release
		return nil, errors.New("released")
	})}
	go func() {
		<-asked
		cancel()
	}()
	if _, err := p.LoginByDevice(ctx, Device{}); !errors.Is(err, context.Canceled) {
		t.Errorf("err is %v, want %v", err, context.Canceled)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
