package oidcflow

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/13eedeaf/kcp/pkg/cli/problem"
)

// DefaultPorts are tried in turn for the listener; 0 is any free one.
var DefaultPorts = []int{8000, 18000, 0}

// callbackPath is part of the redirect URI that a provider knows the client by:
// http://127.0.0.1:<port>/callback.
const callbackPath = "/callback"

// AuthCode is what a login in the browser needs.
type AuthCode struct {
	Scopes []string
	// Ports to listen on, in turn; empty means DefaultPorts.
	Ports []int
	// Present shows the login page to the person. It must not block.
	Present func(url string)
}

// Login lets a person log in. It waits until they have, or ctx ends.
func (p *Provider) Login(ctx context.Context, in AuthCode) (*Tokens, error) {
	listener, err := listen(ctx, in.Ports)
	if err != nil {
		return nil, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	config := p.config("http://127.0.0.1:"+strconv.Itoa(port)+callbackPath, in.Scopes)
	verifier, nonce := oauth2.GenerateVerifier(), rand.Text()
	callback := &callback{state: rand.Text(), answers: make(chan answer, 1)}

	server := &http.Server{Handler: callback, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // it ends when it is shut down
	}()
	defer func() {
		// The person's browser gets its page before the listener goes, also when ctx has
		// ended.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			_ = server.Close() // a browser that keeps its connection open
		}
		<-served
	}()

	in.Present(config.AuthCodeURL(callback.state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)))
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case a := <-callback.answers:
		if a.err != nil {
			return nil, a.err
		}
		token, err := config.Exchange(oidc.ClientContext(ctx, p.client), a.code, oauth2.VerifierOption(verifier))
		if err != nil {
			return nil, explain(p.issuer, "cannot trade the login for a token", err)
		}
		return p.tokens(ctx, token, nonce)
	}
}

func listen(ctx context.Context, ports []int) (net.Listener, error) {
	if len(ports) == 0 {
		ports = DefaultPorts
	}
	var config net.ListenConfig
	var failed []error
	for _, port := range ports {
		listener, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return listener, nil
		}
		failed = append(failed, err)
	}
	return nil, problem.New("cannot listen on 127.0.0.1, port %s, for the browser's answer", portList(ports)).
		Hint("name a free port: kubectl kcp login URL --listen-port 28000").Because(errors.Join(failed...))
}

func portList(ports []int) string {
	out := ""
	for i, port := range ports {
		if i > 0 {
			out += " or "
		}
		out += strconv.Itoa(port)
	}
	return out
}

type answer struct {
	code string
	err  error
}

// callback serves the page to which the provider sends the browser back.
type callback struct {
	state   string
	answers chan answer // of size 1: the first answer counts
}

func (c *callback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Security-Policy", "default-src 'none'")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if r.URL.Path != callbackPath || r.Method != http.MethodGet {
		http.NotFound(w, r)
		return
	}
	query := r.URL.Query()
	// Any page in the browser can send requests here; one without our state is none of
	// this login and does not end it.
	if subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(c.state)) != 1 {
		http.Error(w, "This page belongs to another login (its state differs). Go back to the terminal.", http.StatusBadRequest)
		return
	}
	a := answer{code: query.Get("code")}
	if code := query.Get("error"); code != "" || a.code == "" {
		if code == "" {
			code = "no code was given"
		}
		a.err = problem.New("the login was refused: %q %s", code, query.Get("error_description"))
	}
	select {
	case c.answers <- a:
	default:
	}
	if a.err != nil {
		http.Error(w, "Login failed. The terminal says why.", http.StatusForbidden)
		return
	}
	_, _ = fmt.Fprintln(w, "Login received. You can close this page and go back to the terminal.") // the browser may be gone
}
