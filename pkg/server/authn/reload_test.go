package authn

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

const emptyConfiguration = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"

// TestReloadKeepsTheOldOne: what cannot be used changes nothing.
func TestReloadKeepsTheOldOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "authn.yaml")
	if err := os.WriteFile(file, []byte(emptyConfiguration), 0o600); err != nil {
		t.Fatal(err)
	}
	s, anonymous, err := newIssuers(t.Context(), Config{File: file, Audiences: authenticator.Audiences{"api"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := s.current.Load()
	for name, tc := range map[string]struct{ content, wantError string }{
		"no YAML":           {"{", "couldn't get version/kind"},
		"another kind":      {"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n", "EncryptionConfiguration"},
		"unknown field":     {emptyConfiguration + "jwts: []\n", `unknown field "jwts"`},
		"invalid issuer":    {emptyConfiguration + "jwt: [{issuer: {url: 'http://a', audiences: [b]}, claimMappings: {username: {claim: sub, prefix: ''}}}]\n", "https"},
		"anonymous changed": {emptyConfiguration + "anonymous: {enabled: true}\n", "needs a restart"},
	} {
		if err := s.reload(t.Context(), []byte(tc.content), anonymous); err == nil || !strings.Contains(err.Error(), tc.wantError) {
			t.Errorf("%s: error = %v, want %q", name, err, tc.wantError)
		}
		if s.current.Load() != before {
			t.Errorf("%s: the configuration in force changed", name)
		}
	}
	if err := s.reload(t.Context(), []byte(emptyConfiguration+"jwt: []\n"), anonymous); err != nil {
		t.Errorf("good configuration: %v", err)
	}
	if s.current.Load() == before {
		t.Errorf("a good configuration did not come into force")
	}
}
