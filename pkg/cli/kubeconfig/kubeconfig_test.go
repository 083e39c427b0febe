package kubeconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestConcurrentWriters pins that no writer undoes what another one wrote.
func TestConcurrentWriters(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sub", "config")
	const writers = 8
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			_, err := NewStore(file).Modify(t.Context(), func(cfg *clientcmdapi.Config) error {
				cfg.Clusters[fmt.Sprintf("c%d", i)] = &clientcmdapi.Cluster{Server: "https://x"}
				return nil
			})
			if err != nil {
				t.Errorf("writer %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	cfg, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Clusters) != writers {
		t.Errorf("%d of %d entries survived", len(cfg.Clusters), writers)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{file}, left); diff != "" {
		t.Errorf("files left behind (-want +got):\n%s", diff)
	}
}

// TestRelativePaths pins that paths of entries which are left alone stay as written.
func TestRelativePaths(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config")
	content := `apiVersion: v1
kind: Config
clusters:
- name: theirs
  cluster: {server: "https://x", certificate-authority: certs/ca.crt}
`
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	written, err := NewStore(file).Modify(t.Context(), func(cfg *clientcmdapi.Config) error {
		if got, want := cfg.Clusters["theirs"].CertificateAuthority, filepath.Join(dir, "certs/ca.crt"); got != want {
			t.Errorf("read path is %q, want %q", got, want)
		}
		cfg.CurrentContext = "ours"
		return nil
	})
	if err != nil || !written {
		t.Fatalf("Modify: written %v, err %v", written, err)
	}
	cfg, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Clusters["theirs"].CertificateAuthority; got != "certs/ca.crt" {
		t.Errorf("path was rewritten to %q", got)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %o, want 600", info.Mode().Perm())
	}
}

func TestLoginName(t *testing.T) {
	for host, want := range map[string]string{
		"127.0.0.1:6443":       "kcp-127.0.0.1-6443",
		"KCP.example.com":      "kcp-kcp.example.com",
		"[::1]:6443":           "kcp-1-6443",
		"kcp-eu.example.com:1": "kcp-kcp-eu.example.com-1",
	} {
		if got := LoginName(host); got != want {
			t.Errorf("LoginName(%q) = %q, want %q", host, got, want)
		}
	}
}
