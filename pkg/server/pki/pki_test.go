package pki_test

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/13eedeaf/kcp/pkg/server/pki"
)

func ensure(t *testing.T, o pki.Options) *pki.PKI {
	t.Helper()
	p, err := pki.Ensure(o)
	if err != nil {
		t.Fatalf("Ensure: %v", err)
	}
	return p
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestServedChain connects as a client does that knows nothing but the fingerprint.
func TestServedChain(t *testing.T) {
	p := ensure(t, pki.Options{Dir: filepath.Join(t.TempDir(), "pki"), Hosts: []string{"kcp.example.com", "192.0.2.7"}})
	pair, err := tls.LoadX509KeyPair(p.ServingCertFile, p.ServingKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	defer server.Close()

	want := pki.Fingerprint(p.CA)
	for _, name := range []string{"localhost", "127.0.0.1", "kcp.example.com", "192.0.2.7"} {
		conn, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{
			ServerName: name,
			// The client below verifies by fingerprint, as the CLI does.
			InsecureSkipVerify: true,
		})
		if err != nil {
			t.Fatalf("dial %q: %v", name, err)
		}
		chain := conn.ConnectionState().PeerCertificates
		if err := conn.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		roots := x509.NewCertPool()
		for _, cert := range chain {
			sum := sha256.Sum256(cert.Raw)
			if "sha256:"+hex.EncodeToString(sum[:]) == want {
				roots.AddCert(cert)
			}
		}
		if _, err := chain[0].Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			t.Errorf("verify %q by the CA's fingerprint: %v", name, err)
		}
	}
}

func TestEnsureKeepsAndRenews(t *testing.T) {
	now := time.Now()
	cases := map[string]struct {
		second      pki.Options
		wantServing bool // reissued
		wantAdmin   bool
	}{
		"restart": {
			second: pki.Options{Hosts: []string{"b", "a"}},
		},
		"another order of hosts": {
			second: pki.Options{Hosts: []string{"a", "b", "a"}},
		},
		"another host": {
			second:      pki.Options{Hosts: []string{"a", "c"}},
			wantServing: true,
		},
		"another bind address": {
			second:      pki.Options{Hosts: []string{"a", "b"}, BindAddress: net.ParseIP("192.0.2.1")},
			wantServing: true,
		},
		"unspecified bind address": {
			second: pki.Options{Hosts: []string{"a", "b"}, BindAddress: net.IPv4zero},
		},
		"about to expire": {
			second:      pki.Options{Hosts: []string{"a", "b"}, Now: func() time.Time { return now.Add(340 * 24 * time.Hour) }},
			wantServing: true,
			wantAdmin:   true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "pki")
			first := ensure(t, pki.Options{Dir: dir, Hosts: []string{"a", "b"}})
			serving, sa := read(t, first.ServingCertFile), read(t, first.ServiceAccountKeyFile)
			tc.second.Dir = dir
			second := ensure(t, tc.second)

			if got := read(t, second.ServingCertFile) != serving; got != tc.wantServing {
				t.Errorf("serving certificate reissued = %v, want %v", got, tc.wantServing)
			}
			if got := string(second.Admin.CertPEM) != string(first.Admin.CertPEM); got != tc.wantAdmin {
				t.Errorf("admin certificate reissued = %v, want %v", got, tc.wantAdmin)
			}
			if _, err := tls.X509KeyPair(second.Admin.CertPEM, second.Admin.KeyPEM); err != nil {
				t.Errorf("admin certificate and key: %v", err)
			}
			if diff := cmp.Diff(pki.Fingerprint(first.CA), pki.Fingerprint(second.CA)); diff != "" {
				t.Errorf("CA changed (-first +second):\n%s", diff)
			}
			if read(t, second.ServiceAccountKeyFile) != sa {
				t.Errorf("service account key changed: all tokens would be invalid")
			}
		})
	}
}

func TestEnsureRepairsALeafButNeverACA(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	p := ensure(t, pki.Options{Dir: dir})
	// A start that was cut short between a new key and its certificate.
	if err := os.Rename(filepath.Join(dir, "gateway.key"), p.ServingKeyFile); err != nil {
		t.Fatal(err)
	}
	p = ensure(t, pki.Options{Dir: dir})
	if _, err := tls.LoadX509KeyPair(p.ServingCertFile, p.ServingKeyFile); err != nil {
		t.Errorf("serving pair not repaired: %v", err)
	}
	if _, err := tls.X509KeyPair(p.Gateway.CertPEM, p.Gateway.KeyPEM); err != nil {
		t.Errorf("gateway pair not repaired: %v", err)
	}

	caKey := filepath.Join(dir, "ca.key")
	if err := os.Remove(caKey); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.Ensure(pki.Options{Dir: dir}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Ensure with the CA's key missing: error = %v, want not exist", err)
	}
	if err := os.WriteFile(caKey, p.Admin.KeyPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.Ensure(pki.Options{Dir: dir}); err == nil {
		t.Errorf("Ensure accepted a CA whose key is another's")
	}
}

func TestClientCertificates(t *testing.T) {
	p := ensure(t, pki.Options{Dir: filepath.Join(t.TempDir(), "pki")})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(read(t, p.ClientCAFile)))
	type identity struct {
		User   string
		Groups []string
	}
	for name, tc := range map[string]struct {
		cert pki.ClientCert
		want identity
	}{
		"admin":   {cert: p.Admin, want: identity{User: "kcp-admin", Groups: []string{"system:masters"}}},
		"gateway": {cert: p.Gateway, want: identity{User: "kcp-gateway", Groups: []string{"system:kcp:gateways"}}},
	} {
		pair, err := tls.X509KeyPair(tc.cert.CertPEM, tc.cert.KeyPEM)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := identity{User: pair.Leaf.Subject.CommonName, Groups: pair.Leaf.Subject.Organization}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: usage}); err != nil {
			t.Errorf("%s: not verified by the client CA: %v", name, err)
		}
	}
	// The serving CA vouches for servers only: trusting it must not make anyone a user.
	serving := x509.NewCertPool()
	serving.AddCert(p.CA)
	pair, err := tls.X509KeyPair(p.Admin.CertPEM, p.Admin.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: serving, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
		t.Errorf("the serving CA verifies the admin's certificate, want separate authorities")
	}
}

func TestWriteKubeconfigs(t *testing.T) {
	root := t.TempDir()
	p := ensure(t, pki.Options{Dir: filepath.Join(root, "pki")})
	if err := p.WriteKubeconfigs(root, "https://kcp.example.com:6443", p.CAPEM); err != nil {
		t.Fatalf("WriteKubeconfigs: %v", err)
	}
	got := map[string]string{}
	for _, name := range []string{pki.AdminKubeconfig, pki.GatewayKubeconfig} {
		path := filepath.Join(root, name)
		config, err := clientcmd.LoadFromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for ctxName, ctx := range config.Contexts {
			got[name+" "+ctxName] = config.Clusters[ctx.Cluster].Server
			if string(config.Clusters[ctx.Cluster].CertificateAuthorityData) != string(p.CAPEM) {
				t.Errorf("%s: context %q does not carry the CA", name, ctxName)
			}
		}
		got[name+" current"] = config.CurrentContext
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, want 0600", name, info.Mode().Perm())
		}
	}
	want := map[string]string{
		"admin.kubeconfig root":      "https://kcp.example.com:6443/clusters/root",
		"admin.kubeconfig base":      "https://kcp.example.com:6443",
		"admin.kubeconfig current":   "root",
		"gateway.kubeconfig gateway": "https://kcp.example.com:6443/services/gateway",
		"gateway.kubeconfig current": "gateway",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kubeconfigs (-want +got):\n%s", diff)
	}
}

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ensure(t, pki.Options{Dir: dir})
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("directory mode %v, want 0700", info.Mode().Perm())
	}
	keys, err := filepath.Glob(filepath.Join(dir, "*.key"))
	if err != nil || len(keys) != 6 {
		t.Fatalf("keys = %q (%v), want 6", keys, err)
	}
	for _, key := range keys {
		info, err := os.Stat(key)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, want 0600", filepath.Base(key), info.Mode().Perm())
		}
	}
}
