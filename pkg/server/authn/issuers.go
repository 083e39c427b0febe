package authn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/util/filesystem"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"k8s.io/klog/v2"
)

const (
	// How long a changed configuration may take until its issuers have answered; until
	// then, and when they do not, the old one stays in force.
	reloadTimeout = time.Minute
	// The file is also read this often, for file systems that announce no change.
	reloadPoll = time.Minute
	// How long the embedded provider may take to answer.
	embeddedTimeout = 10 * time.Second
)

// EmbeddedIssuer is the OpenID Provider that this process serves.
type EmbeddedIssuer struct {
	// URL is the issuer, ClientID the audience of its tokens.
	URL, ClientID string
	// Transport reaches the provider without the server's listener, which is not ready
	// yet when the authenticator first asks. See idp.Provider.Transport.
	Transport http.RoundTripper
}

// issuers authenticates ID tokens by the current set of issuers.
type issuers struct {
	config   Config
	reserved []string // issuers that no configuration may name
	current  atomic.Pointer[issuerSet]
}

// issuerSet is one configuration in force.
type issuerSet struct {
	token authenticator.Token
	// checks tell, issuer by issuer, whether its keys could be read. The embedded one
	// comes first.
	checks []func() error
	cancel context.CancelFunc
}

// newIssuers also returns what the file says about anonymous requests, if anything.
func newIssuers(ctx context.Context, c Config, reserved []string) (*issuers, *apiserver.AnonymousAuthConfig, error) {
	s := &issuers{config: c, reserved: reserved}
	config := &apiserver.AuthenticationConfiguration{}
	var data []byte
	if c.File != "" {
		var err error
		if data, err = os.ReadFile(c.File); err != nil {
			return nil, nil, fmt.Errorf("cannot read the authentication configuration: %w", err)
		}
		if config, err = parseConfiguration(data); err != nil {
			return nil, nil, fmt.Errorf("cannot use the authentication configuration %q: %w", c.File, err)
		}
	}
	set, err := s.build(ctx, config)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot use the authentication configuration: %w", err)
	}
	s.current.Store(set)
	if c.Embedded != nil {
		// A matter of milliseconds: it is asked in this process. The file's issuers may
		// take longer, or be down, so nobody waits for them.
		if err := waitHealthy(ctx, set.checks[:1], embeddedTimeout); err != nil {
			set.cancel()
			return nil, nil, err
		}
	}
	if c.File != "" {
		go s.watch(ctx, data, config.Anonymous)
	}
	return s, config.Anonymous, nil
}

func (s *issuers) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return s.current.Load().token.AuthenticateToken(ctx, token)
}

// build makes the authenticators of the file's issuers and of the embedded one.
func (s *issuers) build(ctx context.Context, config *apiserver.AuthenticationConfiguration) (_ *issuerSet, err error) {
	config = config.DeepCopy()
	if s.config.Embedded != nil {
		config.JWT = append([]apiserver.JWTAuthenticator{embeddedConfiguration(*s.config.Embedded)}, config.JWT...)
	}
	if err := validate(config, s.reserved); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	var tokens []authenticator.Token
	var checks []func() error
	for i, jwt := range config.JWT {
		options := oidc.Options{
			JWTAuthenticator:     jwt,
			SupportedSigningAlgs: oidc.AllValidSigningAlgorithms(),
			DisallowedIssuers:    s.reserved,
			APIServerID:          s.config.APIServerID,
		}
		if ca := jwt.Issuer.CertificateAuthority; ca != "" {
			options.CAContentProvider = staticCA(ca)
		}
		if i == 0 && s.config.Embedded != nil {
			options.Client = &http.Client{Transport: s.config.Embedded.Transport}
		}
		next, err := oidc.New(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("issuer %q: %w", jwt.Issuer.URL, err)
		}
		tokens = append(tokens, &issuer{next: next, url: jwt.Issuer.URL, foreign: foreignPrefixes(config.JWT, i)})
		checks = append(checks, next.HealthCheck)
	}
	return &issuerSet{
		token:  authenticator.WrapAudienceAgnosticToken(s.config.Audiences, tokenunion.NewFailOnError(tokens...)),
		checks: checks,
		cancel: cancel,
	}, nil
}

// waitHealthy waits until all checks pass.
func waitHealthy(ctx context.Context, checks []func() error, timeout time.Duration) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, timeout, true, func(context.Context) (bool, error) {
		var errs []error
		for _, check := range checks {
			errs = append(errs, check())
		}
		last = errors.Join(errs...)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("issuers have not answered: %w", errors.Join(last, err))
	}
	return nil
}

// watch puts changes of the file into force until ctx ends.
func (s *issuers) watch(ctx context.Context, data []byte, anonymous *apiserver.AnonymousAuthConfig) {
	logger := klog.FromContext(ctx).WithValues("file", s.config.File)
	seen := string(data)
	filesystem.WatchUntil(ctx, reloadPoll, s.config.File, func() {
		data, err := os.ReadFile(s.config.File)
		if err != nil {
			logger.Error(err, "Authentication configuration not read, the old one stays in force")
			return
		}
		if string(data) == seen {
			return
		}
		if err := s.reload(ctx, data, anonymous); err != nil {
			logger.Error(err, "Authentication configuration not reloaded, the old one stays in force")
			return
		}
		seen = string(data)
		logger.Info("Authentication configuration reloaded")
	}, func(err error) {
		logger.Error(err, "Authentication configuration is not watched, it is read every minute")
	})
}

func (s *issuers) reload(ctx context.Context, data []byte, anonymous *apiserver.AnonymousAuthConfig) error {
	config, err := parseConfiguration(data)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(anonymous, config.Anonymous) {
		return errors.New("a change of anonymous needs a restart")
	}
	set, err := s.build(ctx, config)
	if err != nil {
		return err
	}
	if err := waitHealthy(ctx, set.checks, reloadTimeout); err != nil {
		set.cancel()
		return err
	}
	old := s.current.Swap(set)
	// Requests that began with the old set may still fetch keys.
	time.AfterFunc(reloadTimeout, old.cancel)
	return nil
}

// issuer adds to upstream's authenticator of one issuer what keeps issuers apart.
type issuer struct {
	next authenticator.Token
	url  string
	// foreign are the prefixes of user names and groups that other issuers own.
	foreign prefixes
}

func (i *issuer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	resp, ok, err := i.next.AuthenticateToken(ctx, token)
	if err != nil || !ok {
		return nil, false, err
	}
	if isServiceAccount(resp.User) || slices.ContainsFunc(resp.User.GetGroups(), isServiceAccountGroup) {
		return nil, false, fmt.Errorf("issuer %q cannot vouch for service accounts, such as %q", i.url, resp.User.GetName())
	}
	if owned := i.foreign.match(resp.User); owned != "" {
		return nil, false, fmt.Errorf("issuer %q cannot vouch for %q, which another issuer owns", i.url, owned)
	}
	return &authenticator.Response{
		Audiences: resp.Audiences,
		User:      withExtra(resp.User, IssuerKey, i.url),
	}, true, nil
}

type staticCA string

func (c staticCA) CurrentCABundleContent() []byte { return []byte(strings.TrimSpace(string(c)) + "\n") }
