// Package session is what a command works with: the workspace that the kubeconfig's
// context points at, and clients for any workspace of that server. A user entry written
// by "kubectl kcp login" is served in this process, so that its errors and exit codes
// are ours; any other entry is left to client-go.
package session

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"

	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/kubeconfig"
	"github.com/13eedeaf/kcp/pkg/cli/login"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Options say which workspace a command is about.
type Options struct {
	Config *kubeconfig.Store
	// Context names a kubeconfig context; empty means the current one.
	Context string
	// Workspace is used instead of the context's: an absolute path.
	Workspace string
	Console   *console.Console
	// Tokens serves user entries of a login.
	Tokens *login.GetToken
	// Trace receives a line per request; nil means none. It never sees a header or a
	// body.
	Trace io.Writer
}

// Session is a context of the kubeconfig, opened. Nothing has been sent to the server.
type Session struct {
	// ContextName is the context in use.
	ContextName string
	// Base is the server's address, without a workspace.
	Base string
	// Path is the workspace: a path, or an id where the context has one.
	Path logicalcluster.Path
	// Kubeconfig is the merged kubeconfig that was read.
	Kubeconfig *clientcmdapi.Config

	config *rest.Config
	http   *http.Client
}

// Open reads the kubeconfig and finds the workspace that its context points at.
func Open(ctx context.Context, o Options) (*Session, error) {
	cfg, err := o.Config.Load()
	if err != nil {
		return nil, err
	}
	name := o.Context
	if name == "" {
		name = cfg.CurrentContext
	}
	base, path, err := Workspace(cfg, name)
	if err != nil {
		return nil, err
	}
	if o.Workspace != "" {
		if path, err = ParsePath(o.Workspace); err != nil {
			return nil, err
		}
	}
	s := &Session{ContextName: name, Base: base, Path: path, Kubeconfig: cfg}
	if s.config, err = restConfig(ctx, o, cfg, name); err != nil {
		return nil, err
	}
	s.config.Host = base
	if s.http, err = rest.HTTPClientFor(s.config); err != nil {
		return nil, problem.New("context %q cannot be used: %v", name, err).Hint("look at it: kubectl config view --minify").Because(err)
	}
	return s, nil
}

// ParsePath checks a workspace path that a person typed.
func ParsePath(arg string) (logicalcluster.Path, error) {
	path, err := logicalcluster.ParsePath(arg)
	if err != nil {
		return "", problem.Usage("%v", err).Hint("see the workspaces there are: kubectl kcp ws tree").Because(err)
	}
	return path, nil
}

// Workspace returns the server and the workspace of a context.
func Workspace(cfg *clientcmdapi.Config, context string) (base string, path logicalcluster.Path, err error) {
	if context == "" {
		return "", "", problem.New("no workspace is selected: the kubeconfig has no current context").
			Hint("kubectl kcp login https://HOST:6443")
	}
	entry, ok := cfg.Contexts[context]
	if !ok {
		return "", "", problem.New("there is no context %q in the kubeconfig", context).
			Hint("see which there are: kubectl config get-contexts")
	}
	cluster, ok := cfg.Clusters[entry.Cluster]
	if !ok {
		return "", "", problem.New("context %q names cluster %q, which the kubeconfig does not have", context, entry.Cluster).
			Hint("see what there is: kubectl config view")
	}
	base, path, ok = SplitURL(cluster.Server)
	if !ok {
		return "", "", problem.New("no workspace is selected: the server of context %q is %q, not …/clusters/WORKSPACE", context, cluster.Server).
			Hint("choose a context of a kcp server (kubectl config get-contexts), or log in to one: kubectl kcp login https://HOST:6443")
	}
	return base, path, nil
}

// SplitURL cuts a server URL into the server's address and the workspace.
func SplitURL(server string) (base string, path logicalcluster.Path, ok bool) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return "", "", false
	}
	before, after, found := strings.Cut(u.Path, "/clusters/")
	path, err = logicalcluster.ParsePath(strings.TrimSuffix(after, "/"))
	if !found || err != nil {
		return "", "", false
	}
	u.Path = before
	return strings.TrimSuffix(u.String(), "/"), path, true
}

func restConfig(ctx context.Context, o Options, cfg *clientcmdapi.Config, name string) (*rest.Config, error) {
	entry := cfg.Contexts[name]
	cfg = cfg.DeepCopy()
	who, own := login.IdentityOf(cfg.AuthInfos[entry.AuthInfo])
	if own {
		cfg.AuthInfos[entry.AuthInfo].Exec = nil
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*cfg, name, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, problem.New("context %q cannot be used: %v", name, err).Hint("look at it: kubectl config view --minify").Because(err)
	}
	config.QPS = -1 // the server protects itself
	config.UserAgent = "kubectl-kcp"
	config.WarningHandler = rest.NewWarningWriter(o.Console.Err, rest.WarningWriterOptions{Deduplicate: true})
	if config.Insecure {
		o.Console.Warn("the certificate of %s is not checked (insecure-skip-tls-verify)", config.Host)
	}
	if config.ExecProvider != nil && !console.IsTerminal(o.Console.In) {
		// Another program's credential plugin shall not ask either.
		config.ExecProvider.StdinUnavailable = true
		config.ExecProvider.StdinUnavailableMessage = "this command asks no questions"
	}
	if own {
		interactive := console.IsTerminal(o.Console.In) && console.IsTerminal(o.Console.Err)
		config.Wrap(transport.TokenSourceWrapTransport(&source{ctx: ctx, tokens: o.Tokens, who: who, interactive: interactive}))
	}
	if o.Trace != nil {
		config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &tracer{next: rt, out: o.Trace} })
	}
	return config, nil
}

// source gives requests the login's token. The cache is asked for each request, so
// that a long watch that starts anew has a fresh one.
type source struct {
	ctx         context.Context // of the command: oauth2.TokenSource passes none
	tokens      *login.GetToken
	who         login.Identity
	interactive bool
}

func (s *source) Token() (*oauth2.Token, error) {
	got, err := s.tokens.Token(s.ctx, s.who, s.interactive)
	if err != nil {
		return nil, err
	}
	return &oauth2.Token{AccessToken: got.IDToken, TokenType: "Bearer", Expiry: got.Expiry}, nil
}

// tracer shows requests. A query may carry what should not be shown, so it is cut off.
type tracer struct {
	next http.RoundTripper
	out  io.Writer
}

func (t *tracer) RoundTrip(req *http.Request) (*http.Response, error) {
	start := time.Now()
	resp, err := t.next.RoundTrip(req)
	outcome := "failed"
	if err == nil {
		outcome = resp.Status
	}
	_, _ = fmt.Fprintf(t.out, "%s %s://%s%s %s (%d ms)\n", req.Method, req.URL.Scheme, req.URL.Host, req.URL.Path, outcome, time.Since(start).Milliseconds())
	return resp, err
}

// LoginCommand returns the command that renews the session's login, or "" when the
// context does not use one.
func LoginCommand(cfg *clientcmdapi.Config, context string) string {
	if context == "" {
		context = cfg.CurrentContext
	}
	entry, ok := cfg.Contexts[context]
	if !ok {
		return ""
	}
	who, ok := login.IdentityOf(cfg.AuthInfos[entry.AuthInfo])
	if !ok {
		return ""
	}
	return who.LoginCommand()
}

// REST returns a client for one group and version below a path of the server.
func (s *Session) REST(below string, gv schema.GroupVersion) (rest.Interface, error) {
	config := *s.config
	config.Host = s.Base + below
	config.APIPath = "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.GroupVersion = &gv
	config.NegotiatedSerializer = codecs.WithoutConversion()
	client, err := rest.RESTClientForConfigAndClient(&config, s.http)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for %q: %w", config.Host, err)
	}
	return client, nil
}

// Anonymous returns an HTTP client that trusts whom the session trusts and shows no
// credentials. It follows no redirect.
func (s *Session) Anonymous() (*http.Client, error) {
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(s.config))
	if err != nil {
		return nil, problem.New("context %q cannot be used: %v", s.ContextName, err).Hint("look at it: kubectl config view --minify").Because(err)
	}
	own := *client // client-go may hand out one that others use
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own, nil
}

// Kubeconfig entries for another program that is to reach the server.

// CAData returns the PEM of the authorities that the session trusts; nil means the
// system's.
func (s *Session) CAData() ([]byte, error) {
	config := *s.config
	if err := rest.LoadTLSFiles(&config); err != nil {
		return nil, fmt.Errorf("cannot read the certificate authority of context %q: %w", s.ContextName, err)
	}
	return config.CAData, nil
}

// Insecure reports whether the session checks no certificate.
func (s *Session) Insecure() bool { return s.config.Insecure }
