package idp

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/op"
	"k8s.io/client-go/util/keyutil"

	"github.com/13eedeaf/kcp/pkg/atomicfile"
)

// signingKey signs ID tokens. RS256 is the one algorithm that every OpenID client must
// support (OpenID Connect Core, section 15.1).
type signingKey struct {
	id  string
	key *rsa.PrivateKey
}

var _ op.SigningKey = &signingKey{}

func (k *signingKey) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k *signingKey) Key() any                                    { return k.key }
func (k *signingKey) ID() string                                  { return k.id }

// publicKey is what the keys endpoint shows of a signingKey.
type publicKey struct{ *signingKey }

var _ op.Key = publicKey{}

func (k publicKey) Algorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k publicKey) Use() string                        { return "sig" }
func (k publicKey) Key() any                           { return &k.key.PublicKey }

func ensureSigningKey(path string) (*signingKey, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = newSigningKey(path)
	}
	if err != nil {
		return nil, err
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("cannot read the signing key in %q: %w", path, err)
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("cannot use the signing key in %q: it is no RSA key", path)
	}
	jwk := jose.JSONWebKey{Key: &key.PublicKey}
	thumbprint, err := jwk.Thumbprint(crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("cannot name the signing key in %q: %w", path, err)
	}
	return &signingKey{id: base64.RawURLEncoding.EncodeToString(thumbprint), key: key}, nil
}

func newSigningKey(path string) ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("cannot make a signing key: %w", err)
	}
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the signing key: %w", err)
	}
	return data, atomicfile.Write(path, data, 0o600)
}

// ensureSecret returns the random secret from which symmetric keys are derived.
func ensureSecret(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		data = []byte(hex.EncodeToString(randomBytes(32)))
		err = atomicfile.Write(path, data, 0o600)
	}
	if err != nil {
		return nil, err
	}
	secret, err := hex.DecodeString(string(data))
	if err != nil || len(secret) != 32 {
		return nil, fmt.Errorf("cannot use the secret in %q: want 64 hexadecimal digits", path)
	}
	return secret, nil
}

// derive returns an independent key for each purpose.
func derive(secret []byte, purpose string) [32]byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(purpose))
	return [32]byte(mac.Sum(nil))
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	// crypto/rand.Read never fails; it ends the program when the system has no
	// randomness.
	_, _ = rand.Read(b)
	return b
}

// randomToken returns 256 bits as URL-safe text.
func randomToken() string { return base64.RawURLEncoding.EncodeToString(randomBytes(32)) }
