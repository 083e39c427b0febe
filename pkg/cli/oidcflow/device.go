package oidcflow

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/13eedeaf/kcp/pkg/cli/problem"
)

var (
	// ErrNoDevice means that an issuer does not offer the device flow.
	ErrNoDevice = errors.New("the issuer offers no device flow")
	// ErrCodeExpired means that nobody entered the code in time.
	ErrCodeExpired = errors.New("the code has expired")
)

// Device is what a login by a code needs (RFC 8628).
type Device struct {
	Scopes []string
	// Present shows the code to the person. It must not block.
	Present func(DeviceCode)
	// Away is told, once, that the issuer cannot be reached while the person is at it.
	Away func(error)
}

// DeviceCode is what a person needs to log in on any device.
type DeviceCode struct {
	// Page is where to enter Code.
	Page, Code string
	// Filled is the page with the code filled in; "" if the issuer has none.
	Filled string
}

// LoginByDevice lets a person log in by a code that they enter in a browser on any
// device. It waits until they have, or ctx ends.
func (p *Provider) LoginByDevice(ctx context.Context, in Device) (*Tokens, error) {
	config := p.config("", in.Scopes)
	if config.Endpoint.DeviceAuthURL == "" {
		return nil, ErrNoDevice
	}
	device, err := p.authorizeDevice(ctx, config)
	if err != nil {
		return nil, explain(p.issuer, "cannot begin a login by code", err)
	}
	code, err := p.deviceCode(device)
	if err != nil {
		return nil, err
	}
	in.Present(code)
	token, err := p.poll(ctx, config, device, in.Away)
	if err != nil {
		return nil, err
	}
	return p.tokens(ctx, token, "") // this flow has no nonce: the device code binds the answer
}

// authorizeDevice asks for a code. The library's request does not end with ctx.
func (p *Provider) authorizeDevice(ctx context.Context, config *oauth2.Config) (*oauth2.DeviceAuthResponse, error) {
	type answer struct {
		device *oauth2.DeviceAuthResponse
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		device, err := config.DeviceAuth(oidc.ClientContext(ctx, p.client))
		answers <- answer{device, err}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case a := <-answers:
		return a.device, a.err
	}
}

// deviceCode checks what the issuer wants a person to see and follow.
func (p *Provider) deviceCode(device *oauth2.DeviceAuthResponse) (DeviceCode, error) {
	code := DeviceCode{Code: printable(device.UserCode), Page: page(device.VerificationURI), Filled: page(device.VerificationURIComplete)}
	if device.DeviceCode == "" || code.Code == "" || code.Page == "" {
		return DeviceCode{}, problem.New("issuer %q gave no code, or no https page to enter it on", p.issuer)
	}
	return code, nil
}

// page returns an https URL in a form that is safe to print, else "".
func page(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return ""
	}
	return printable(u.String())
}

// printable drops what would drive the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
}

// poll asks for the token until the person has decided. An issuer that cannot be
// reached for a while is asked again.
func (p *Provider) poll(ctx context.Context, config *oauth2.Config, device *oauth2.DeviceAuthResponse, away func(error)) (*oauth2.Token, error) {
	told := false
	for {
		token, err := config.DeviceAccessToken(oidc.ClientContext(ctx, p.client), device)
		expired := !device.Expiry.IsZero() && !time.Now().Before(device.Expiry)
		answer, answered := errors.AsType[*oauth2.RetrieveError](err)
		switch {
		case err == nil:
			return token, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case expired, answered && answer.ErrorCode == "expired_token":
			return nil, ErrCodeExpired
		case answered && answer.ErrorCode == "access_denied":
			return nil, problem.New("the login was refused").Because(err)
		case answered && answer.Response != nil && answer.Response.StatusCode >= 500:
		case !isNetwork(err):
			return nil, explain(p.issuer, "cannot trade the code for a token", err)
		}
		if !told {
			away(explain(p.issuer, "cannot trade the code for a token", err))
			told = true
		}
	}
}

func isNetwork(err error) bool {
	_, ok := errors.AsType[*url.Error](err)
	return ok
}
