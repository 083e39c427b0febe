// Package trust decides whether a server's certificate is trusted: by the system's
// authorities, by a file of authorities, by the fingerprint of an authority that the
// server presents, or not at all. Trust comes from what the user gives, never from the
// server: nothing here shows a fingerprint that a server presented.
package trust

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/13eedeaf/kcp/pkg/cli/problem"
)

// Rules are the flags by which a user says whom to trust. At most one is set; none
// means the system's authorities.
type Rules struct {
	// Fingerprint is "sha256:" and the hexadecimal SHA-256 of a CA certificate.
	Fingerprint string
	// File is the path of a PEM file of CA certificates.
	File string
	// Insecure trusts anything.
	Insecure bool
}

// Validate checks the flags and brings them into the form that Args prints.
func (r *Rules) Validate() error {
	set := 0
	for _, is := range []bool{r.Fingerprint != "", r.File != "", r.Insecure} {
		if is {
			set++
		}
	}
	if set > 1 {
		return problem.Usage("--ca-fingerprint, --certificate-authority and --insecure-skip-tls-verify exclude each other")
	}
	if r.Fingerprint != "" {
		digest, ok := strings.CutPrefix(strings.ToLower(r.Fingerprint), "sha256:")
		digest = strings.ReplaceAll(digest, ":", "")
		if raw, err := hex.DecodeString(digest); !ok || err != nil || len(raw) != sha256.Size {
			return problem.Usage("--ca-fingerprint %q is not \"sha256:\" and 64 hexadecimal digits", r.Fingerprint).
				Hint("take it from the server's CA: openssl x509 -in ca.crt -noout -fingerprint -sha256")
		}
		r.Fingerprint = "sha256:" + digest
	}
	if r.File == "" {
		return nil
	}
	abs, err := filepath.Abs(r.File)
	if err != nil {
		return fmt.Errorf("cannot resolve %q: %w", r.File, err)
	}
	r.File = abs
	return nil
}

// Args returns the flags that say the same.
func (r Rules) Args() []string {
	switch {
	case r.Fingerprint != "":
		return []string{"--ca-fingerprint=" + r.Fingerprint}
	case r.File != "":
		return []string{"--certificate-authority=" + r.File}
	case r.Insecure:
		return []string{"--insecure-skip-tls-verify"}
	}
	return nil
}

// String identifies the rules, for a cache's key.
func (r Rules) String() string {
	if args := r.Args(); len(args) > 0 {
		return args[0]
	}
	return "system"
}

// Anchor is whom to trust, resolved. It can be stored.
type Anchor struct {
	// CAData is the PEM of the only authorities that may sign the server's certificate;
	// empty means the system's.
	CAData []byte `json:"caData,omitempty"`
	// Insecure trusts anything.
	Insecure bool `json:"insecure,omitempty"`
}

// Resolve finds the anchor for a server. For a fingerprint it asks the server for its
// certificates, looks for the one named and checks that it vouches for the server.
func (r Rules) Resolve(ctx context.Context, server *url.URL) (Anchor, error) {
	switch {
	case r.Insecure:
		return Anchor{Insecure: true}, nil
	case r.File != "":
		return fromFile(r.File)
	case r.Fingerprint != "":
		return r.fromServer(ctx, server)
	}
	return Anchor{}, nil
}

func fromFile(path string) (Anchor, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		reason := err
		if pathErr, ok := errors.AsType[*os.PathError](err); ok {
			reason = pathErr.Err
		}
		return Anchor{}, problem.New("cannot read --certificate-authority %q: %v", path, reason).
			Hint("look for it: ls -l %s", path).Because(err)
	}
	var certificates bytes.Buffer
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			continue
		}
		// Keys and comments in the file stay out of what is stored.
		certificates.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}))
	}
	if certificates.Len() == 0 {
		return Anchor{}, problem.New("--certificate-authority %q holds no certificate", path).
			Hint("look at it: openssl x509 -in %s -noout -text", path)
	}
	return Anchor{CAData: certificates.Bytes()}, nil
}

const handshakeTimeout = 10 * time.Second

func (r Rules) fromServer(ctx context.Context, server *url.URL) (Anchor, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	var presented []*x509.Certificate
	dialer := tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: server.Hostname(),
		// The chain is verified below, against the certificate with the fingerprint.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			presented = state.PeerCertificates
			return nil
		},
	}}
	conn, err := dialer.DialContext(ctx, "tcp", hostPort(server))
	if err != nil {
		return Anchor{}, &url.Error{Op: "Get", URL: server.String(), Err: err}
	}
	_ = conn.Close() // nothing was sent
	anchor := find(presented, r.Fingerprint)
	if anchor == nil {
		return Anchor{}, problem.New("%s presents no certificate with fingerprint %q: it is another server, or its CA was replaced", server, r.Fingerprint).
			Hint("compare with the login line that the server printed at its start, or with: openssl x509 -in ca.crt -noout -fingerprint -sha256")
	}
	roots, others := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(anchor)
	for _, c := range presented[1:] {
		others.AddCert(c)
	}
	if _, err := presented[0].Verify(x509.VerifyOptions{DNSName: server.Hostname(), Roots: roots, Intermediates: others}); err != nil {
		return Anchor{}, &url.Error{Op: "Get", URL: server.String(), Err: err}
	}
	return Anchor{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: anchor.Raw})}, nil
}

func find(certificates []*x509.Certificate, fingerprint string) *x509.Certificate {
	for _, c := range certificates {
		sum := sha256.Sum256(c.Raw)
		if "sha256:"+hex.EncodeToString(sum[:]) == fingerprint {
			return c
		}
	}
	return nil
}

func hostPort(server *url.URL) string {
	port := server.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(server.Hostname(), port)
}

// Client returns an HTTP client that trusts only the anchor, for requests to the server
// itself.
func (a Anchor) Client() (*http.Client, error) { return a.client(false) }

// IssuerClient returns an HTTP client for requests to the server's OIDC issuer. An
// issuer at the same address is trusted like the server; another one may also have a
// certificate from the system's authorities.
func (a Anchor) IssuerClient(server *url.URL, issuer string) (*http.Client, error) {
	u, err := url.Parse(issuer)
	if err != nil {
		return nil, fmt.Errorf("issuer %q is not a URL: %w", issuer, err)
	}
	return a.client(hostPort(u) != hostPort(server))
}

// requestTimeout bounds one request; the longest is the first one for a home workspace.
const requestTimeout = 60 * time.Second

func (a Anchor) client(andSystem bool) (*http.Client, error) {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSHandshakeTimeout: handshakeTimeout,
		ForceAttemptHTTP2:   true,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: a.Insecure},
	}
	if len(a.CAData) > 0 {
		pool := x509.NewCertPool()
		if andSystem {
			system, err := x509.SystemCertPool()
			if err != nil {
				return nil, fmt.Errorf("cannot read the system's certificate authorities: %w", err)
			}
			pool = system
		}
		if !pool.AppendCertsFromPEM(a.CAData) {
			return nil, errors.New("the stored certificate authority is damaged")
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	return &http.Client{Transport: transport, Timeout: requestTimeout}, nil
}
