// Package oidcflow gets tokens from an OpenID provider for a program on a person's
// machine (RFC 8252): the authorization code flow with PKCE over a listener on
// 127.0.0.1, refresh, and revocation. It keeps nothing; pkg/cli/tokencache does.
package oidcflow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/13eedeaf/kcp/pkg/cli/problem"
)

// Provider is an issuer whose discovery document was read.
type Provider struct {
	provider *oidc.Provider
	issuer   string
	clientID string
	client   *http.Client
	now      func() time.Time
}

// Tokens is what a flow yields.
type Tokens struct {
	IDToken, RefreshToken string
	// Subject identifies the user at the issuer.
	Subject string
	// Name is what the issuer calls the user, best effort.
	Name   string
	Expiry time.Time
}

// ErrRejected means that the issuer does not honour a refresh token any more.
var ErrRejected = errors.New("the issuer does not accept the refresh token")

// Discover reads an issuer's discovery document. Only https issuers are used.
func Discover(ctx context.Context, client *http.Client, issuer, clientID string, now func() time.Time) (*Provider, error) {
	u, err := url.Parse(issuer)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, problem.New("issuer %q is not an https URL", issuer).
			Hint("ask the server's administrator to correct its authentication configuration; it is named in: kubectl kcp version")
	}
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, client), issuer)
	if err != nil {
		return nil, explain(issuer, "cannot read its discovery document", err)
	}
	return &Provider{provider: provider, issuer: issuer, clientID: clientID, client: client, now: now}, nil
}

func (p *Provider) config(redirect string, scopes []string) *oauth2.Config {
	endpoint := p.provider.Endpoint()
	// A public client sends its id in the body; probing for another style would spend
	// the code or the refresh token on a refused request.
	endpoint.AuthStyle = oauth2.AuthStyleInParams
	return &oauth2.Config{ClientID: p.clientID, Endpoint: endpoint, RedirectURL: redirect, Scopes: scopes}
}

// Refresh trades a refresh token for new tokens. An issuer that does not rotate refresh
// tokens leaves it in place. It returns ErrRejected when only a new login helps.
func (p *Provider) Refresh(ctx context.Context, refreshToken string) (*Tokens, error) {
	source := p.config("", nil).TokenSource(oidc.ClientContext(ctx, p.client), &oauth2.Token{RefreshToken: refreshToken})
	token, err := source.Token()
	if err != nil {
		if isRejected(err) {
			return nil, ErrRejected
		}
		return nil, explain(p.issuer, "cannot refresh the token", err)
	}
	return p.tokens(ctx, token, "")
}

// isRejected tells a refusal (RFC 6749 5.2) from an issuer that is out of order.
func isRejected(err error) bool {
	answer, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return false
	}
	switch answer.ErrorCode {
	case "invalid_grant", "invalid_client", "unauthorized_client", "access_denied", "interaction_required", "login_required":
		return true
	}
	return false
}

// tokens verifies an answer of the token endpoint.
func (p *Provider) tokens(ctx context.Context, token *oauth2.Token, nonce string) (*Tokens, error) {
	raw, ok := token.Extra("id_token").(string)
	if !ok || raw == "" {
		return nil, problem.New("issuer %q gave no ID token: scope \"openid\" is missing, or it gives none at a refresh", p.issuer)
	}
	verifier := p.provider.Verifier(&oidc.Config{ClientID: p.clientID, Now: p.now})
	id, err := verifier.Verify(oidc.ClientContext(ctx, p.client), raw)
	if err != nil {
		return nil, explain(p.issuer, "its ID token is not valid", err)
	}
	if nonce != "" && id.Nonce != nonce {
		return nil, problem.New("issuer %q answered with an ID token of another login (its nonce differs)", p.issuer)
	}
	var claims struct {
		Username string `json:"preferred_username"`
		Email    string `json:"email"`
		Name     string `json:"name"`
	}
	if err := id.Claims(&claims); err != nil {
		return nil, problem.New("issuer %q gave an ID token whose claims cannot be read", p.issuer).Because(err)
	}
	name := id.Subject
	for _, n := range []string{claims.Username, claims.Email, claims.Name} {
		if n != "" {
			name = n
			break
		}
	}
	return &Tokens{IDToken: raw, RefreshToken: token.RefreshToken, Subject: id.Subject, Name: name, Expiry: id.Expiry}, nil
}

// Revoke asks the issuer to forget a refresh token (RFC 7009). It returns false where
// the issuer has no such endpoint.
func (p *Provider) Revoke(ctx context.Context, refreshToken string) (bool, error) {
	var more struct {
		Endpoint string `json:"revocation_endpoint"`
	}
	if err := p.provider.Claims(&more); err != nil || more.Endpoint == "" {
		return false, nil
	}
	form := url.Values{"token": {refreshToken}, "token_type_hint": {"refresh_token"}, "client_id": {p.clientID}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, more.Endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return false, fmt.Errorf("cannot revoke the token at %q: %w", p.issuer, err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := p.client.Do(req)
	if err != nil {
		return false, fmt.Errorf("cannot revoke the token at %q: %w", p.issuer, err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing is read from it
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("cannot revoke the token at %q: status %d", p.issuer, resp.StatusCode)
	}
	return true, nil
}

// explain says in one line what went wrong at the issuer; the network's own errors
// speak for themselves.
func explain(issuer, what string, err error) error {
	if _, ok := errors.AsType[*url.Error](err); ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if answer, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		reason := strings.TrimSpace(answer.ErrorCode + " " + answer.ErrorDescription)
		if reason == "" && answer.Response != nil {
			reason = answer.Response.Status
		}
		// The body is not shown: it may hold a token.
		return problem.New("issuer %q: %s: %s", issuer, what, reason).Because(err)
	}
	return problem.New("issuer %q: %s: %v", issuer, what, err).Because(err)
}
