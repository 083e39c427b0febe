package pki

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"slices"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"github.com/13eedeaf/kcp/pkg/atomicfile"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// ensureAuthority reads a CA, or makes one when it has no certificate yet.
func ensureAuthority(certFile, keyFile, name string, now time.Time) (*authority, error) {
	certPEM, err := os.ReadFile(certFile)
	if errors.Is(err, fs.ErrNotExist) {
		return newAuthority(certFile, keyFile, name, now)
	}
	if err != nil {
		return nil, err
	}
	certs, err := certutil.ParseCertsPEM(certPEM)
	if err != nil {
		return nil, fmt.Errorf("cannot read the CA certificate %q: %w", certFile, err)
	}
	keyPEM, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read the key of the CA %q: %w", certFile, err)
	}
	key, err := parseKey(keyFile, keyPEM)
	if err != nil {
		return nil, err
	}
	a := &authority{cert: certs[0], key: key}
	if !key.PublicKey.Equal(a.cert.PublicKey) {
		return nil, fmt.Errorf("cannot use the CA: key %q does not belong to certificate %q", keyFile, certFile)
	}
	if now.After(a.cert.NotAfter) {
		return nil, fmt.Errorf("cannot use the CA %q: it expired at %s; move it and its key away to get a new one", certFile, a.cert.NotAfter.Format(time.RFC3339))
	}
	return a, nil
}

// newAuthority writes the key before the certificate: a CA counts as existing once its
// certificate stands, so a start that was cut short in between begins again.
func newAuthority(certFile, keyFile, name string, now time.Time) (*authority, error) {
	key, err := newKey(keyFile)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	a := &authority{cert: template, key: key}
	if a.cert, err = a.sign(template, key, now, caValidity); err != nil {
		return nil, err
	}
	return a, atomicfile.Write(certFile, encodeCert(a.cert), 0o644)
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey, now time.Time, validity time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("cannot make a serial number: %w", err)
	}
	template.SerialNumber = serial
	// Clocks of clients may be a little behind.
	template.NotBefore = now.Add(-5 * time.Minute)
	template.NotAfter = now.Add(validity)
	if !template.IsCA && template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("cannot sign the certificate of %q: %w", template.Subject.CommonName, err)
	}
	return x509.ParseCertificate(der)
}

// ensureLeaf returns the certificate in the files when it still fits the template, and
// otherwise issues one. The file holds the certificate followed by the CA's.
func (a *authority) ensureLeaf(certFile, keyFile string, template *x509.Certificate, now time.Time) (ClientCert, error) {
	certPEM, certErr := os.ReadFile(certFile)
	keyPEM, keyErr := os.ReadFile(keyFile)
	if certErr == nil && keyErr == nil && a.fits(certPEM, keyPEM, template, now) {
		return ClientCert{CertPEM: certPEM, KeyPEM: keyPEM}, nil
	}
	key, err := newKey(keyFile)
	if err != nil {
		return ClientCert{}, err
	}
	cert, err := a.sign(template, key, now, leafValidity)
	if err != nil {
		return ClientCert{}, err
	}
	certPEM = append(encodeCert(cert), encodeCert(a.cert)...)
	if err := atomicfile.Write(certFile, certPEM, 0o644); err != nil {
		return ClientCert{}, err
	}
	keyPEM, err = os.ReadFile(keyFile)
	return ClientCert{CertPEM: certPEM, KeyPEM: keyPEM}, err
}

func (a *authority) fits(certPEM, keyPEM []byte, template *x509.Certificate, now time.Time) bool {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return false
	}
	cert := pair.Leaf
	return cert.CheckSignatureFrom(a.cert) == nil &&
		len(pair.Certificate) == 2 && slices.Equal(pair.Certificate[1], a.cert.Raw) &&
		now.Add(renewBefore).Before(cert.NotAfter) && !now.Before(cert.NotBefore) &&
		cert.Subject.CommonName == template.Subject.CommonName &&
		slices.Equal(cert.Subject.Organization, template.Subject.Organization) &&
		slices.Equal(cert.ExtKeyUsage, template.ExtKeyUsage) &&
		slices.Equal(cert.DNSNames, template.DNSNames) &&
		slices.EqualFunc(cert.IPAddresses, template.IPAddresses, net.IP.Equal)
}

// servingTemplate covers loopback, the bind address and the given hosts, in a fixed
// order, so that equal options give equal names.
func servingTemplate(o Options) *x509.Certificate {
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kcp"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	addIP := func(ip net.IP) {
		if ip != nil && !ip.IsUnspecified() && !slices.ContainsFunc(t.IPAddresses, ip.Equal) {
			t.IPAddresses = append(t.IPAddresses, ip)
		}
	}
	addIP(o.BindAddress)
	for _, host := range slices.Sorted(slices.Values(o.Hosts)) {
		if ip := net.ParseIP(host); ip != nil {
			addIP(ip)
			continue
		}
		if host != "" && !slices.Contains(t.DNSNames, host) {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	return t
}

func clientTemplate(user, group string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: []string{group}},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

func encodeCert(cert *x509.Certificate) []byte {
	data, _ := certutil.EncodeCertificates(cert) // fails only where pem.Encode to memory does, which is never
	return data
}
