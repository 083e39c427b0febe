// Package pki keeps the server's own keys and certificates under <root>/pki and writes
// the kubeconfigs that are made from them. Everything is created once and kept across
// restarts; what is about to expire or no longer fits is issued anew.
//
// # Two authorities
//
// The serving CA (ca.crt) signs only the serving certificate. Its certificate is given
// to clients, which may know nothing of it but its Fingerprint; so the served chain
// carries the CA too. The client CA (client-ca.crt) signs identities: whatever it signs
// as O=system:masters is an administrator. The two are separate so that replacing the
// serving certificate by one from a public or company CA changes nothing about who may
// be an administrator, and so that no certificate meant for a server can ever be
// presented as a user.
//
// # Files
//
// Keys have mode 0600, the directory 0700, and each file is replaced atomically. A
// CA whose key is missing or does not fit is an error and never replaced silently:
// clients trust it.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/13eedeaf/kcp/pkg/atomicfile"
)

const (
	caValidity   = 10 * 365 * 24 * time.Hour
	leafValidity = 365 * 24 * time.Hour
	// A leaf with less than this left is issued anew at the next start.
	renewBefore = 30 * 24 * time.Hour
)

// Identities of the client certificates that Ensure issues.
const (
	AdminUser    = "kcp-admin"
	AdminGroup   = "system:masters"
	GatewayUser  = "kcp-gateway"
	GatewayGroup = "system:kcp:gateways"
)

// Options say where the files are and what the serving certificate must cover.
type Options struct {
	// Dir is the directory of the files, made with mode 0700 when it is missing.
	Dir string
	// BindAddress is the address that the server listens on; an unspecified one
	// (0.0.0.0, ::) adds no name.
	BindAddress net.IP
	// Hosts are further DNS names or IP addresses that clients use.
	Hosts []string
	// Now defaults to time.Now.
	Now func() time.Time
}

// ClientCert is a client certificate and its key, both PEM.
type ClientCert struct {
	CertPEM, KeyPEM []byte
}

// PKI names the files for the server's options and holds what kubeconfigs need.
type PKI struct {
	// CAFile is the certificate that signs the serving certificate.
	CAFile string
	// ServingCertFile holds the serving certificate followed by the CA's.
	ServingCertFile, ServingKeyFile string
	// ClientCAFile verifies client certificates.
	ClientCAFile string
	// ServiceAccountKeyFile holds the private key that signs service account tokens.
	ServiceAccountKeyFile string

	// CA is the serving CA's certificate, CAPEM the same as PEM.
	CA    *x509.Certificate
	CAPEM []byte
	// ServiceAccountKey is the key in ServiceAccountKeyFile.
	ServiceAccountKey *ecdsa.PrivateKey
	// Admin is in group system:masters, Gateway in system:kcp:gateways.
	Admin, Gateway ClientCert
}

// Fingerprint returns "sha256:" and the hex of the certificate's SHA-256, the form that
// `kubectl kcp login --ca-fingerprint` takes.
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Ensure creates what is missing, renews what must be renewed and returns all of it.
// Only one process may use a directory at a time.
func Ensure(o Options) (*PKI, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the directory for keys: %w", err)
	}
	// MkdirAll leaves the mode of a directory that exists.
	if err := os.Chmod(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot protect the directory for keys: %w", err)
	}
	file := func(name string) string { return filepath.Join(o.Dir, name) }
	p := &PKI{
		CAFile:                file("ca.crt"),
		ServingCertFile:       file("serving.crt"),
		ServingKeyFile:        file("serving.key"),
		ClientCAFile:          file("client-ca.crt"),
		ServiceAccountKeyFile: file("service-account.key"),
	}

	serving, err := ensureAuthority(p.CAFile, file("ca.key"), "kcp serving CA", o.Now())
	if err != nil {
		return nil, err
	}
	p.CA, p.CAPEM = serving.cert, encodeCert(serving.cert)
	clients, err := ensureAuthority(p.ClientCAFile, file("client-ca.key"), "kcp client CA", o.Now())
	if err != nil {
		return nil, err
	}

	if _, err := serving.ensureLeaf(p.ServingCertFile, p.ServingKeyFile, servingTemplate(o), o.Now()); err != nil {
		return nil, err
	}
	if p.Admin, err = clients.ensureLeaf(file("admin.crt"), file("admin.key"), clientTemplate(AdminUser, AdminGroup), o.Now()); err != nil {
		return nil, err
	}
	if p.Gateway, err = clients.ensureLeaf(file("gateway.crt"), file("gateway.key"), clientTemplate(GatewayUser, GatewayGroup), o.Now()); err != nil {
		return nil, err
	}
	if p.ServiceAccountKey, err = ensureKey(p.ServiceAccountKeyFile); err != nil {
		return nil, err
	}
	return p, nil
}

// ensureKey reads an ECDSA key, or makes one when there is no file.
func ensureKey(path string) (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newKey(path)
	}
	if err != nil {
		return nil, err
	}
	return parseKey(path, data)
}

func parseKey(path string, data []byte) (*ecdsa.PrivateKey, error) {
	key, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("cannot read the key in %q: %w", path, err)
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("cannot use the key in %q: it is no ECDSA key", path)
	}
	return ec, nil
}

func newKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("cannot encode a key: %w", err)
	}
	return key, atomicfile.Write(path, data, 0o600)
}
