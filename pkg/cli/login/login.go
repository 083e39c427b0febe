// Package login holds the use cases around identity: Login, Logout and GetToken.
//
// A login leaves two things: the tokens in the token cache, and entries of one name in
// the kubeconfig whose user runs "kubectl-kcp get-token" with flags that name the login.
// So a kubeconfig holds no secret.
package login

import (
	"context"
	"net/url"
	"strings"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/kubeconfig"
	"github.com/13eedeaf/kcp/pkg/cli/oidcflow"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/cli/tokencache"
	"github.com/13eedeaf/kcp/pkg/cli/trust"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Input of Login.
type Input struct {
	// Server is the argument: the server's address.
	Server  string
	Trust   trust.Rules
	Browser BrowserOptions
}

// Login is the use case of "kubectl kcp login".
type Login struct {
	Console *console.Console
	Clock   clock.PassiveClock
	Cache   *tokencache.Cache
	Config  *kubeconfig.Store
	// Self is the command by which kubectl finds this program.
	Self string
}

// Do logs in and makes the user's home workspace the current one.
func (l *Login) Do(ctx context.Context, in Input) error {
	u, err := parseServer(in.Server)
	if err != nil {
		return err
	}
	if err := in.Trust.Validate(); err != nil {
		return err
	}
	if err := in.Browser.validate(); err != nil {
		return err
	}
	if in.Trust.Insecure {
		l.Console.Warn("the certificate of %s is not checked (--insecure-skip-tls-verify): whoever answers there gets your credentials", u)
	}
	server, err := connect(ctx, u, in.Trust)
	if err != nil {
		return err
	}
	tokens, discovery, err := authenticate(ctx, l.Console, l.Clock, server, in.Browser)
	if err != nil {
		return err
	}
	_, home, err := server.home(ctx, tokens.IDToken)
	if err != nil {
		return err
	}
	name := server.username(ctx, home, tokens.IDToken)
	if name == "" {
		name = tokens.Name
	}
	who := Identity{Server: u.String(), Issuer: discovery.Issuer, ClientID: discovery.ClientID, User: tokens.Subject, Trust: in.Trust}
	if err := l.Cache.Put(who.key(), who.record(server.anchor, tokens)); err != nil {
		return err
	}
	if err := l.writeKubeconfig(ctx, server, who, home); err != nil {
		return err
	}
	l.Console.Note("Logged in as %q. Current workspace is %q.", name, home)
	return nil
}

// writeKubeconfig points kubectl at a workspace with the identity that logged in.
func (l *Login) writeKubeconfig(ctx context.Context, s *server, who Identity, path logicalcluster.Path) error {
	name := kubeconfig.LoginName(s.url.Host)
	_, err := l.Config.Modify(ctx, func(cfg *clientcmdapi.Config) error {
		cfg.Clusters[name] = &clientcmdapi.Cluster{
			Server:                   s.url.String() + path.RequestPath(),
			CertificateAuthorityData: s.anchor.CAData,
			InsecureSkipTLSVerify:    s.anchor.Insecure,
		}
		cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{Exec: who.exec(l.Self)}
		cfg.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
		cfg.CurrentContext = name
		return nil
	})
	return err
}

// Identity names a login by the flags of get-token.
type Identity struct {
	Server, Issuer, ClientID, User string
	Trust                          trust.Rules
}

func (i Identity) key() tokencache.Key {
	return tokencache.Key{Issuer: i.Issuer, ClientID: i.ClientID, Trust: i.Trust.String(), User: i.User}
}

func (i Identity) record(anchor trust.Anchor, t *oidcflow.Tokens) *tokencache.Login {
	return &tokencache.Login{
		Server: i.Server, Issuer: i.Issuer, ClientID: i.ClientID, User: i.User, Anchor: anchor,
		IDToken: t.IDToken, RefreshToken: t.RefreshToken, Expiry: t.Expiry,
	}
}

// LoginCommand returns the command line that renews the login.
func (i Identity) LoginCommand() string { return loginCommand(i.Server, i.Trust) }

func (i Identity) exec(self string) *clientcmdapi.ExecConfig {
	args := []string{"get-token", "--server=" + i.Server, "--issuer=" + i.Issuer, "--client-id=" + i.ClientID, "--user=" + i.User}
	return &clientcmdapi.ExecConfig{
		APIVersion:      ExecV1,
		Command:         self,
		Args:            append(args, i.Trust.Args()...),
		InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode,
		InstallHint:     kubeconfig.Plugin + " is not on the PATH: install it where kubectl finds its plugins",
	}
}

// IdentityOf reads the flags of a user entry that Login wrote; false for any other.
func IdentityOf(user *clientcmdapi.AuthInfo) (Identity, bool) {
	if !kubeconfig.IsOwnUser(user) {
		return Identity{}, false
	}
	var i Identity
	fields := map[string]*string{
		"--server": &i.Server, "--issuer": &i.Issuer, "--client-id": &i.ClientID, "--user": &i.User,
		"--ca-fingerprint": &i.Trust.Fingerprint, "--certificate-authority": &i.Trust.File,
	}
	for _, arg := range user.Exec.Args[1:] {
		flag, value, _ := strings.Cut(arg, "=")
		if flag == "--insecure-skip-tls-verify" {
			i.Trust.Insecure = true
			continue
		}
		field, ok := fields[flag]
		if !ok {
			return Identity{}, false
		}
		*field = value
	}
	return i, i.valid() == nil
}

func (i Identity) valid() error {
	if i.Server == "" || i.Issuer == "" || i.ClientID == "" || i.User == "" {
		return problem.Usage("get-token needs --server, --issuer, --client-id and --user; login writes them into the kubeconfig").
			Hint("kubectl kcp login https://HOST:6443")
	}
	if _, err := url.Parse(i.Server); err != nil {
		return problem.Usage("--server %q is not a URL", i.Server)
	}
	return nil
}
