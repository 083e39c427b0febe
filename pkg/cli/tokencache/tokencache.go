// Package tokencache keeps tokens between runs, one file per login, under
// ~/.kube/cache/kcp-login: the directory 0700, files 0600, replaced atomically. One
// process at a time refreshes a login: it holds the login's lock, and whoever waited
// for it reads the file again.
package tokencache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/13eedeaf/kcp/pkg/atomicfile"
	"github.com/13eedeaf/kcp/pkg/cli/trust"
)

// Key names a login. Two logins share a file only if all of it is equal.
type Key struct {
	Issuer   string
	ClientID string
	// Trust is trust.Rules.String.
	Trust string
	// User is the subject at the issuer.
	User string
}

func (k Key) hash() string {
	// Strings cannot fail to encode, and JSON keeps the parts apart.
	data, _ := json.Marshal([]string{k.Issuer, k.ClientID, k.Trust, k.User})
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Login is what is kept. It holds secrets: never print or log it.
type Login struct {
	Server       string       `json:"server"`
	Issuer       string       `json:"issuer"`
	ClientID     string       `json:"clientID"`
	User         string       `json:"user"`
	Anchor       trust.Anchor `json:"trust"`
	IDToken      string       `json:"idToken"`
	RefreshToken string       `json:"refreshToken,omitempty"`
	// Expiry is when IDToken expires.
	Expiry time.Time `json:"expiry"`
}

// Format hides the secrets from every verb of fmt.
func (l Login) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "login of %q at %q", l.User, l.Issuer)
}

// ErrNone means that there is no such login, or that its file cannot be used.
var ErrNone = errors.New("not logged in")

// Cache is the directory of logins.
type Cache struct{ dir string }

// New returns the cache in dir; empty means ~/.kube/cache/kcp-login.
func New(dir string) (*Cache, error) {
	if dir != "" {
		return &Cache{dir: dir}, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("cannot find the home directory for the token cache: %w", err)
	}
	return &Cache{dir: filepath.Join(home, ".kube", "cache", "kcp-login")}, nil
}

func (c *Cache) path(k Key) string { return filepath.Join(c.dir, k.hash()+".json") }

// Get returns a login, or ErrNone.
func (c *Cache) Get(k Key) (*Login, error) {
	data, err := os.ReadFile(c.path(k))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, err
	}
	var login Login
	if err := json.Unmarshal(data, &login); err != nil || login.Issuer != k.Issuer || login.User != k.User {
		return nil, ErrNone // damaged: a login writes it anew
	}
	return &login, nil
}

// Put stores a login.
func (c *Cache) Put(k Key, login *Login) error {
	if err := c.makeDir(); err != nil {
		return err
	}
	data, err := json.Marshal(login)
	if err != nil {
		return fmt.Errorf("cannot encode the login: %w", err)
	}
	return atomicfile.Write(c.path(k), data, 0o600)
}

// Delete removes a login and reports whether there was one.
func (c *Cache) Delete(k Key) (bool, error) {
	err := os.Remove(c.path(k))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (c *Cache) makeDir() error {
	if err := os.MkdirAll(filepath.Dir(c.dir), 0o750); err != nil {
		return err
	}
	if err := os.Mkdir(c.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// One that another program made may be open to others.
	return os.Chmod(c.dir, 0o700)
}

// Lock waits until no other process holds the login's lock, and takes it. The lock ends
// with the process, however that ends, so it is never stale.
func (c *Cache) Lock(ctx context.Context, k Key) (unlock func(), err error) {
	if err := c.makeDir(); err != nil {
		return nil, err
	}
	path := filepath.Join(c.dir, k.hash()+".lock")
	// Made here, since the lock would make it with a wider mode.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	_ = f.Close() // nothing was written
	type result struct {
		unlock func()
		err    error
	}
	locked := make(chan result, 1)
	go func() {
		unlock, err := lockedfile.MutexAt(path).Lock()
		locked <- result{unlock, err}
	}()
	select {
	case <-ctx.Done():
		// The system call cannot be interrupted; what it gets late is given back.
		go func() {
			if r := <-locked; r.err == nil {
				r.unlock()
			}
		}()
		return nil, ctx.Err()
	case r := <-locked:
		return r.unlock, r.err
	}
}
