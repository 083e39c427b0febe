package login

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"

	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/oidcflow"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
)

// DefaultTimeout is how long a person has for the browser.
const DefaultTimeout = 5 * time.Minute

// BrowserOptions say how the login page is shown.
type BrowserOptions struct {
	// Command is the browser to start instead of the system's.
	Command string
	// None only prints the address.
	None bool
	// Device shows a code to type in a browser on any machine.
	Device bool
	// Ports for the listener, in turn; empty means oidcflow.DefaultPorts.
	Ports []int
	// Timeout for the person.
	Timeout time.Duration
}

func (o BrowserOptions) validate() error {
	if o.Device && (o.Command != "" || o.None) {
		return problem.Usage("--device excludes --browser-command and --no-browser").
			Hint("kubectl kcp login --help")
	}
	return nil
}

// authenticate lets a person log in, in a browser on this machine or, where none would
// be in front of them, by a code that they type elsewhere.
func authenticate(ctx context.Context, c *console.Console, clk clock.PassiveClock, s *server, opts BrowserOptions) (*oidcflow.Tokens, *Discovery, error) {
	discovery, err := s.discover(ctx)
	if err != nil {
		return nil, nil, err
	}
	client, err := s.anchor.IssuerClient(s.url, discovery.Issuer)
	if err != nil {
		return nil, nil, err
	}
	provider, err := oidcflow.Discover(ctx, client, discovery.Issuer, discovery.ClientID, clk.Now)
	if err != nil {
		return nil, nil, err
	}
	if opts.Timeout <= 0 {
		opts.Timeout = DefaultTimeout
	}
	wait, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	tokens, err := flow(wait, c, provider, discovery.Scopes, opts)
	switch {
	case err == nil:
		return tokens, discovery, nil
	case ctx.Err() != nil:
		return nil, nil, problem.Cancelled("login cancelled, nothing was changed").Because(err)
	case errors.Is(err, context.DeadlineExceeded) && wait.Err() != nil:
		return nil, nil, problem.New("nobody logged in within %s", opts.Timeout).
			Hint("try again, with more time: %s --timeout 15m", loginCommand(s.url.String(), s.rules)).Because(err)
	case errors.Is(err, oidcflow.ErrCodeExpired):
		return nil, nil, problem.New("nobody entered the code before it expired").
			Hint("try again, with a new one: %s", loginCommand(s.url.String(), s.rules)).Because(err)
	case errors.Is(err, oidcflow.ErrNoDevice):
		return nil, nil, problem.New("issuer %q offers no login by code (RFC 8628)", discovery.Issuer).
			Hint("log in with a browser on this machine: %s --no-browser", loginCommand(s.url.String(), s.rules)).Because(err)
	}
	return nil, nil, err
}

// flow chooses how to log in. An issuer without the device flow is no obstacle unless
// it was asked for: the page's address is printed then.
func flow(ctx context.Context, c *console.Console, provider *oidcflow.Provider, scopes []string, opts BrowserOptions) (*oidcflow.Tokens, error) {
	byItself := !opts.None && !(console.SystemBrowser{Console: c, Command: opts.Command}).Here()
	if opts.Device || byItself {
		tokens, err := provider.LoginByDevice(ctx, oidcflow.Device{
			Scopes:  scopes,
			Present: func(code oidcflow.DeviceCode) { presentCode(c, code) },
			Away:    func(err error) { c.Warn("%s; trying again", problem.Describe(err, problem.About{}).Error()) },
		})
		if opts.Device || !errors.Is(err, oidcflow.ErrNoDevice) {
			return tokens, err
		}
		opts.None = true
	}
	return provider.Login(ctx, oidcflow.AuthCode{
		Scopes:  scopes,
		Ports:   opts.Ports,
		Present: func(page string) { present(ctx, c, opts, page) },
	})
}

func presentCode(c *console.Console, code oidcflow.DeviceCode) {
	c.Note("Open this page in a browser on any device, and enter the code to log in:\n\n    %s\n    code: %s\n", code.Page, code.Code)
	if code.Filled != "" {
		c.Note("With the code filled in: %s", code.Filled)
	}
	c.Note("Waiting for the login. Enter no code that you did not ask for.")
}

// present opens the login page, or prints its address where that does not work.
func present(ctx context.Context, c *console.Console, opts BrowserOptions, page string) {
	show := func() { c.Note("Open this page in a browser to log in:\n\n    %s\n", page) }
	if opts.None {
		show()
		return
	}
	done, err := console.SystemBrowser{Console: c, Command: opts.Command}.Open(page)
	if err != nil {
		if !errors.Is(err, console.ErrNoBrowser) {
			c.Warn("%v", err)
		}
		show()
		return
	}
	c.Note("Waiting for the login in your browser (--no-browser prints the address instead).")
	go func() {
		select {
		case <-ctx.Done():
		case err := <-done:
			if err != nil && ctx.Err() == nil {
				c.Warn("%v", err)
				show()
			}
		}
	}()
}
