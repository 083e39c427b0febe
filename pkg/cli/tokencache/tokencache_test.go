package tokencache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestKeysDoNotMeet(t *testing.T) {
	base := Key{Issuer: "https://i", ClientID: "kcp", Trust: "system", User: "u"}
	seen := map[string]Key{base.hash(): base}
	for _, k := range []Key{
		{Issuer: "https://j", ClientID: "kcp", Trust: "system", User: "u"},
		{Issuer: "https://i", ClientID: "other", Trust: "system", User: "u"},
		{Issuer: "https://i", ClientID: "kcp", Trust: "--insecure-skip-tls-verify", User: "u"},
		{Issuer: "https://i", ClientID: "kcp", Trust: "system", User: "v"},
		{Issuer: "https://i", ClientID: "kcp", Trust: "systemu", User: ""},
	} {
		if other, ok := seen[k.hash()]; ok {
			t.Errorf("%v and %v share a file", k, other)
		}
		seen[k.hash()] = k
	}
}

func TestCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "cache")
	c, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	key := Key{Issuer: "https://i", ClientID: "kcp", Trust: "system", User: "u"}
	if _, err := c.Get(key); !errors.Is(err, ErrNone) {
		t.Errorf("Get of nothing: %v, want ErrNone", err)
	}
	want := &Login{Issuer: "https://i", User: "u", IDToken: "id", RefreshToken: "refresh", Expiry: time.Unix(1700000000, 0).UTC()}
	if err := c.Put(key, want); err != nil {
		t.Fatal(err)
	}
	got, err := c.Get(key)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("login (-want +got):\n%s", diff)
	}
	unlock, err := c.Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	modes := map[string]string{}
	err = filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		modes[filepath.Ext(path)] = fmt.Sprintf("%o", info.Mode().Perm())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"": "700", ".json": "600", ".lock": "600"}, modes); diff != "" {
		t.Errorf("modes (-want +got):\n%s", diff)
	}
	if err := os.WriteFile(c.path(key), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(key); !errors.Is(err, ErrNone) {
		t.Errorf("Get of a damaged file: %v, want ErrNone", err)
	}
	for _, wantHad := range []bool{true, false} {
		if had, err := c.Delete(key); had != wantHad || err != nil {
			t.Errorf("Delete = %v, %v, want %v", had, err, wantHad)
		}
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	l := Login{User: "u", Issuer: "https://i", IDToken: "SECRET", RefreshToken: "SECRET"}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d"} {
		for _, v := range []any{l, &l} {
			if got := fmt.Sprintf(verb, v); strings.Contains(got, "SECRET") {
				t.Errorf("%s prints %s", verb, got)
			}
		}
	}
}
