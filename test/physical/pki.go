package physical

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// validity of all certificates; a fixture lives for hours.
const validity = 30 * 24 * time.Hour

// authority signs the certificates of one cluster.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// subject is whom a certificate is for. With hosts it is a server's, else a
// client's.
type subject struct {
	name  string
	group string
	hosts []string
}

// newAuthority makes a CA and stores its certificate as ca.crt in dir. Its key
// is not stored.
func newAuthority(dir, name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot generate CA key: %w", err)
	}
	template, err := newTemplate(name)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("cannot create CA certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("cannot parse CA certificate: %w", err)
	}
	a := &authority{dir: dir, cert: cert, key: key}
	return a, a.write("ca.crt", "CERTIFICATE", der)
}

// issue makes a certificate and a key and stores them as file.crt and file.key.
func (a *authority) issue(file string, s subject) error {
	template, err := newTemplate(s.name)
	if err != nil {
		return err
	}
	if s.group != "" {
		template.Subject.Organization = []string{s.group}
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(s.hosts) > 0 {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, h := range s.hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, h)
	}
	key, err := a.newKey(file + ".key")
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("cannot create certificate %q: %w", file, err)
	}
	return a.write(file+".crt", "CERTIFICATE", der)
}

// newKey makes a private key and stores it.
func (a *authority) newKey(file string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot generate %q: %w", file, err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("cannot encode %q: %w", file, err)
	}
	return key, a.write(file, "EC PRIVATE KEY", der)
}

func (a *authority) write(file, kind string, der []byte) error {
	path := filepath.Join(a.dir, file)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("cannot store %q: %w", file, err)
	}
	return nil
}

func newTemplate(name string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("cannot choose a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Minute),
		NotAfter:     now.Add(validity),
	}, nil
}

// ensurePKI makes the certificates, keys and kubeconfigs of the cluster unless
// they are there. The admin's kubeconfig comes last and says that all are.
func (c *Cluster) ensurePKI() error {
	if _, err := os.Stat(c.Kubeconfig()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(c.pkiDir(), 0o700); err != nil {
		return fmt.Errorf("cannot make directory for keys: %w", err)
	}
	ca, err := newAuthority(c.pkiDir(), c.name+"-ca")
	if err != nil {
		return err
	}
	if _, err := ca.newKey("sa.key"); err != nil {
		return err
	}
	subjects := map[string]subject{
		"apiserver": {name: "kube-apiserver", hosts: []string{
			c.Address(), c.serviceIP(1), "localhost", "kubernetes", "kubernetes.default",
			"kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		}},
		"kubelet": {name: "system:node:" + c.NodeName(), hosts: []string{c.Address(), c.NodeName()}},
		"admin":   {name: "physical-admin", group: "system:masters"},
		"node":    {name: "system:node:" + c.NodeName(), group: "system:nodes"},
	}
	for file, s := range subjects {
		if err := ca.issue(file, s); err != nil {
			return err
		}
	}
	if err := c.writeKubeconfig(c.path("node.kubeconfig"), "node"); err != nil {
		return err
	}
	return c.writeKubeconfig(c.Kubeconfig(), "admin")
}

// writeKubeconfig writes a self-contained kubeconfig for one of the client
// certificates, readable by its owner only.
func (c *Cluster) writeKubeconfig(path, client string) error {
	data := map[string][]byte{"ca.crt": nil, client + ".crt": nil, client + ".key": nil}
	for file := range data {
		content, err := os.ReadFile(filepath.Join(c.pkiDir(), file))
		if err != nil {
			return fmt.Errorf("cannot write kubeconfig %q: %w", path, err)
		}
		data[file] = content
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[c.name] = &clientcmdapi.Cluster{Server: c.Server(), CertificateAuthorityData: data["ca.crt"]}
	config.AuthInfos[client] = &clientcmdapi.AuthInfo{ClientCertificateData: data[client+".crt"], ClientKeyData: data[client+".key"]}
	config.Contexts[c.name] = &clientcmdapi.Context{Cluster: c.name, AuthInfo: client}
	config.CurrentContext = c.name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("cannot write kubeconfig %q: %w", path, err)
	}
	return nil
}
