package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/oidcflow"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/cli/tokencache"
)

// Versions of the exec credential API (client.authentication.k8s.io).
const (
	ExecV1      = "client.authentication.k8s.io/v1"
	execV1beta1 = "client.authentication.k8s.io/v1beta1"
)

// execInfoEnv is where kubectl says what it wants.
const execInfoEnv = "KUBERNETES_EXEC_INFO"

// leeway renews a token that would expire under the request that it is for.
const leeway = 10 * time.Second

// GetToken is the use case of "kubectl-kcp get-token", which kubectl runs.
type GetToken struct {
	Console *console.Console
	Clock   clock.PassiveClock
	Cache   *tokencache.Cache
}

// execInfo is the part of ExecCredential that matters here, in both versions.
type execInfo struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Interactive bool `json:"interactive"`
	} `json:"spec"`
	Status *execStatus `json:"status,omitempty"`
}

type execStatus struct {
	ExpirationTimestamp metav1.Time `json:"expirationTimestamp"`
	Token               string      `json:"token"`
}

// Do prints an ExecCredential with a valid token. Where kubectl has a terminal for it,
// it opens a browser when only a login helps; elsewhere it fails with ExitLogin.
func (g *GetToken) Do(ctx context.Context, who Identity) error {
	if err := who.valid(); err != nil {
		return err
	}
	if err := who.Trust.Validate(); err != nil {
		return err
	}
	info, err := parseExecInfo(g.Console.Env(execInfoEnv))
	if err != nil {
		return err
	}
	login, err := g.Token(ctx, who, info.Spec.Interactive)
	if err != nil {
		return err
	}
	info.Status = &execStatus{Token: login.IDToken, ExpirationTimestamp: metav1.NewTime(login.Expiry)}
	data, err := json.Marshal(info)
	if err != nil {
		return fmt.Errorf("cannot encode the credential: %w", err)
	}
	g.Console.Print("%s", data)
	return nil
}

func parseExecInfo(text string) (*execInfo, error) {
	info := &execInfo{APIVersion: ExecV1}
	if text != "" {
		if err := json.Unmarshal([]byte(text), info); err != nil {
			return nil, problem.Usage("$%s is not the JSON that kubectl writes", execInfoEnv).Because(err)
		}
	}
	if info.APIVersion != ExecV1 && info.APIVersion != execV1beta1 {
		return nil, problem.Usage("kubectl asks for a credential of version %q; known are %q and %q", info.APIVersion, ExecV1, execV1beta1).
			Hint("set apiVersion: %s in the user's exec section: kubectl config view --minify", ExecV1)
	}
	info.Kind = "ExecCredential"
	return info, nil
}

// Token returns a login whose token is valid, refreshing it if need be. Of several
// processes that call it at once one refreshes, or opens a browser, and the others use
// what it got.
func (g *GetToken) Token(ctx context.Context, who Identity, interactive bool) (*tokencache.Login, error) {
	login, err := g.cached(who)
	if login != nil || err != nil {
		return login, err
	}
	unlock, err := g.Cache.Lock(ctx, who.key())
	if err != nil {
		return nil, err
	}
	defer unlock()
	if login, err = g.cached(who); login != nil || err != nil {
		return login, err
	}
	old, err := g.Cache.Get(who.key())
	if err != nil && !errors.Is(err, tokencache.ErrNone) {
		return nil, err
	}
	if old != nil && old.RefreshToken != "" {
		login, err = g.refresh(ctx, who, old)
		if !errors.Is(err, oidcflow.ErrRejected) {
			return login, err
		}
	}
	if interactive {
		return g.login(ctx, who)
	}
	if old == nil {
		return nil, problem.LoginNeeded("not logged in to %s", who.Server).Hint("%s", who.LoginCommand())
	}
	return nil, problem.LoginNeeded("the login to %s has expired", who.Server).Hint("%s", who.LoginCommand())
}

// cached returns the stored login if its token is still good, else nil.
func (g *GetToken) cached(who Identity) (*tokencache.Login, error) {
	login, err := g.Cache.Get(who.key())
	if errors.Is(err, tokencache.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if login.Expiry.Sub(g.Clock.Now()) < leeway {
		return nil, nil
	}
	return login, nil
}

func (g *GetToken) refresh(ctx context.Context, who Identity, old *tokencache.Login) (*tokencache.Login, error) {
	g.warn(who)
	provider, err := providerOf(ctx, g.Clock, who, old)
	if err != nil {
		return nil, err
	}
	tokens, err := provider.Refresh(ctx, old.RefreshToken)
	if err != nil {
		return nil, err
	}
	return g.store(who, old, tokens)
}

func providerOf(ctx context.Context, clk clock.PassiveClock, who Identity, login *tokencache.Login) (*oidcflow.Provider, error) {
	server, err := url.Parse(who.Server)
	if err != nil {
		return nil, fmt.Errorf("server %q is not a URL: %w", who.Server, err)
	}
	client, err := login.Anchor.IssuerClient(server, who.Issuer)
	if err != nil {
		return nil, err
	}
	return oidcflow.Discover(ctx, client, who.Issuer, who.ClientID, clk.Now)
}

// login runs the flow in the browser for the identity that the kubeconfig names.
func (g *GetToken) login(ctx context.Context, who Identity) (*tokencache.Login, error) {
	g.warn(who)
	u, err := parseServer(who.Server)
	if err != nil {
		return nil, err
	}
	server, err := connect(ctx, u, who.Trust)
	if err != nil {
		return nil, err
	}
	tokens, _, err := authenticate(ctx, g.Console, g.Clock, server, BrowserOptions{})
	if err != nil {
		return nil, err
	}
	return g.store(who, &tokencache.Login{Anchor: server.anchor}, tokens)
}

// store writes new tokens, which must be of the same user.
func (g *GetToken) store(who Identity, old *tokencache.Login, tokens *oidcflow.Tokens) (*tokencache.Login, error) {
	if tokens.Subject != who.User {
		return nil, problem.LoginNeeded("%q logged in, but the kubeconfig entry is for another user", tokens.Name).Hint("%s", who.LoginCommand())
	}
	login := who.record(old.Anchor, tokens)
	if login.RefreshToken == "" {
		login.RefreshToken = old.RefreshToken // an issuer that does not rotate them
	}
	if err := g.Cache.Put(who.key(), login); err != nil {
		return nil, err
	}
	return login, nil
}

func (g *GetToken) warn(who Identity) {
	if who.Trust.Insecure {
		g.Console.Warn("the certificate of %s is not checked (--insecure-skip-tls-verify)", who.Server)
	}
}
