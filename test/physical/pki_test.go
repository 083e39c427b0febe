package physical

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPKI(t *testing.T) {
	o, err := Options{Dir: t.TempDir(), BinDir: "/tmp/bin", Runtime: "runc"}.complete()
	if err != nil {
		t.Fatal(err)
	}
	c := newFixture(o).Cluster("us-west1")
	if err := c.ensurePKI(); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if st.Mode().Perm() != 0o600 {
		t.Errorf("mode of the kubeconfig is %o, want 600", st.Mode().Perm())
	}
	config, err := c.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	if want := "https://10.200.0.2:16443"; config.Host != want {
		t.Errorf("server is %q, want %q", config.Host, want)
	}

	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(config.CAData) {
		t.Fatal("kubeconfig has no CA")
	}
	client, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("client certificate: %v", err)
	}
	if diff := cmp.Diff([]string{"system:masters"}, client.Leaf.Subject.Organization); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	data, err := os.ReadFile(filepath.Join(c.pkiDir(), "apiserver.crt"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	server, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"10.200.0.2", "10.102.0.1", "kubernetes.default.svc"} {
		if _, err := server.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("serving certificate: %v", err)
		}
	}

	// A second time changes nothing, or running components would not match.
	before, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ensurePKI(); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("kubeconfig has changed:\n%s", diff)
	}
}
