// Package idp is the OpenID Provider that `kcp start` serves where no other is named, for
// laptops, demos and small installations. It speaks the whole protocol (zitadel/oidc):
// authorization code with PKCE, refresh tokens with rotation, and the device flow. The
// users stand in a file of bcrypt hashes.
//
// # Identity
//
// Each user has a sub that never changes: the random id that AddUser writes, or, for an
// entry written by hand without one, a hash of the user name. preferred_username is the
// user name and is unique in the file.
//
// # Files
//
// Everything lives under Options.Dir: users.yaml, which is read again whenever it
// changes; signing.key and secret.key, made at the first start; sessions.json, the
// refresh tokens (their hashes only). A restart needs no new login. Sign-ins under way
// and access tokens are kept in memory and do not survive one.
//
// # Browser
//
// A sign-in belongs to the browser that started it: a cookie set at the authorization
// endpoint must come back with the form and with the redirect that carries the code, so
// that a link to a sign-in that someone else started is worthless. Forms also carry a
// token bound to that cookie.
package idp

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/zitadel/oidc/v3/pkg/op"
	"golang.org/x/text/language"
)

// ClientID is the only client: public, so it must use PKCE.
const ClientID = "kcp"

// UsersFile is the name of the users' file in Options.Dir.
const UsersFile = "users.yaml"

// Scopes that a client should ask for.
var Scopes = []string{"openid", "email", "groups", "offline_access"}

const (
	idTokenLifetime   = time.Hour
	signInLifetime    = 10 * time.Minute
	deviceLifetime    = 10 * time.Minute
	defaultDevicePoll = 5 * time.Second
)

// Options configure a Provider.
type Options struct {
	// Issuer is an https URL with a path, such as https://host:6443/idp. The handler
	// serves everything below it.
	Issuer string
	// Dir holds the provider's files, made with mode 0700 when it is missing.
	Dir string
	// DevicePoll is how often a device may ask for its token, at least a second;
	// 5 s when zero.
	DevicePoll time.Duration
	// Now defaults to time.Now.
	Now func() time.Time
}

// Provider serves the protocol and its pages.
type Provider struct {
	handler http.Handler
}

// New reads or creates the provider's files. One process may use a directory at a time.
func New(o Options) (*Provider, error) {
	issuer, err := url.Parse(o.Issuer)
	if err != nil {
		return nil, fmt.Errorf("cannot use issuer %q: %w", o.Issuer, err)
	}
	if issuer.Scheme != "https" || issuer.Host == "" || issuer.Path == "" || strings.HasSuffix(issuer.Path, "/") {
		return nil, fmt.Errorf("cannot use issuer %q: it must look like https://host:port/path", o.Issuer)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.DevicePoll == 0 {
		o.DevicePoll = defaultDevicePoll
	}
	if err := errors.Join(os.MkdirAll(o.Dir, 0o700), os.Chmod(o.Dir, 0o700)); err != nil {
		return nil, fmt.Errorf("cannot make the directory of the identity provider: %w", err)
	}
	secret, err := ensureSecret(filepath.Join(o.Dir, "secret.key"))
	if err != nil {
		return nil, err
	}
	key, err := ensureSigningKey(filepath.Join(o.Dir, "signing.key"))
	if err != nil {
		return nil, err
	}
	grants, err := openGrants(filepath.Join(o.Dir, "sessions.json"), o.Now)
	if err != nil {
		return nil, err
	}
	users := newUserStore(filepath.Join(o.Dir, UsersFile))
	if _, err := users.list(); err != nil {
		return nil, err
	}
	s := newStorage(o.Issuer, users, grants, key, o.Now)

	library, err := op.NewProvider(&op.Config{
		CryptoKey:             derive(secret, "tokens"),
		CodeMethodS256:        true,
		GrantTypeRefreshToken: true,
		SupportedUILocales:    []language.Tag{language.English},
		SupportedScopes:       append([]string{"profile"}, Scopes...),
		SupportedClaims: []string{"sub", "aud", "exp", "iat", "iss", "auth_time", "nonce", "amr", "c_hash", "at_hash",
			"azp", "preferred_username", "name", "email", "email_verified", "groups"},
		DeviceAuthorization: op.DeviceAuthorizationConfig{
			Lifetime:     deviceLifetime,
			PollInterval: o.DevicePoll,
			UserFormPath: issuer.Path + "/device",
			UserCode:     op.UserCodeBase20,
		},
	}, s, op.StaticIssuer(o.Issuer),
		// The command line is no browser: no page of another origin has business here.
		op.WithCORSOptions(nil),
		op.WithCustomDeviceAuthorizationEndpoint(op.NewEndpoint("device_authorization")),
	)
	if err != nil {
		return nil, fmt.Errorf("cannot set up the identity provider: %w", err)
	}
	csrf := derive(secret, "forms")
	p := &pages{
		storage: s,
		path:    issuer.Path,
		csrfKey: csrf[:],
		limit:   newLimiter(o.Now),
	}
	return &Provider{handler: p.routes(library)}, nil
}

// Handler serves the issuer's path and everything below it; the request's path must
// still carry that prefix.
func (p *Provider) Handler() http.Handler { return p.handler }
