package idp

import (
	"context"
	"sync"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// maxPending bounds what callers who have not signed in can make the server keep.
const maxPending = 10_000

// pending is a bounded map whose entries end by themselves.
type pending[V any] struct {
	now func() time.Time

	mu      sync.Mutex
	entries map[string]pendingEntry[V]
}

type pendingEntry[V any] struct {
	value   V
	expires time.Time
}

func newPending[V any](now func() time.Time) *pending[V] {
	return &pending[V]{now: now, entries: map[string]pendingEntry[V]{}}
}

// put stores a value; false when the map is full.
func (p *pending[V]) put(key string, value V, lifetime time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if len(p.entries) >= maxPending {
		for k, e := range p.entries {
			if now.After(e.expires) {
				delete(p.entries, k)
			}
		}
	}
	if _, known := p.entries[key]; !known && len(p.entries) >= maxPending {
		return false
	}
	p.entries[key] = pendingEntry[V]{value: value, expires: now.Add(lifetime)}
	return true
}

func (p *pending[V]) get(key string) (V, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live(key)
}

// take removes the value and returns it: of several callers only one gets it.
func (p *pending[V]) take(key string) (V, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	value, ok := p.live(key)
	delete(p.entries, key)
	return value, ok
}

// live returns a value that has not ended. The caller holds mu.
func (p *pending[V]) live(key string) (V, bool) {
	e, ok := p.entries[key]
	if !ok || p.now().After(e.expires) {
		var zero V
		return zero, false
	}
	return e.value, true
}

// update changes a value in place, keeping its end.
func (p *pending[V]) update(key string, change func(*V)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.entries[key]
	if !ok || p.now().After(e.expires) {
		return false
	}
	change(&e.value)
	p.entries[key] = e
	return true
}

// authRequest is a sign-in under way, from the authorization endpoint until its code is
// exchanged. Values are copied, never shared.
type authRequest struct {
	id string
	// browser is the cookie of the browser that started it.
	browser  string
	request  oidc.AuthRequest
	subject  string
	authTime time.Time
	done     bool
}

var _ op.AuthRequest = &authRequest{}

func (r *authRequest) GetID() string                      { return r.id }
func (r *authRequest) GetACR() string                     { return "" }
func (r *authRequest) GetAMR() []string                   { return []string{"pwd"} }
func (r *authRequest) GetAudience() []string              { return []string{r.request.ClientID} }
func (r *authRequest) GetAuthTime() time.Time             { return r.authTime }
func (r *authRequest) GetClientID() string                { return r.request.ClientID }
func (r *authRequest) GetNonce() string                   { return r.request.Nonce }
func (r *authRequest) GetRedirectURI() string             { return r.request.RedirectURI }
func (r *authRequest) GetScopes() []string                { return r.request.Scopes }
func (r *authRequest) GetState() string                   { return r.request.State }
func (r *authRequest) GetSubject() string                 { return r.subject }
func (r *authRequest) Done() bool                         { return r.done }
func (r *authRequest) GetResponseType() oidc.ResponseType { return r.request.ResponseType }
func (r *authRequest) GetResponseMode() oidc.ResponseMode { return r.request.ResponseMode }
func (r *authRequest) GetCodeChallenge() *oidc.CodeChallenge {
	return &oidc.CodeChallenge{Challenge: r.request.CodeChallenge, Method: r.request.CodeChallengeMethod}
}

// refreshRequest is a grant whose token is being exchanged.
type refreshRequest struct {
	grant
	scopes []string
}

var _ op.RefreshTokenRequest = &refreshRequest{}

func (r *refreshRequest) GetAMR() []string                 { return r.AMR }
func (r *refreshRequest) GetAudience() []string            { return []string{r.ClientID} }
func (r *refreshRequest) GetAuthTime() time.Time           { return r.AuthTime }
func (r *refreshRequest) GetClientID() string              { return r.ClientID }
func (r *refreshRequest) GetScopes() []string              { return r.scopes }
func (r *refreshRequest) GetSubject() string               { return r.Subject }
func (r *refreshRequest) SetCurrentScopes(scopes []string) { r.scopes = scopes }

type browserKey struct{}

// withBrowser tells CreateAuthRequest which browser starts the sign-in.
func withBrowser(ctx context.Context, cookie string) context.Context {
	return context.WithValue(ctx, browserKey{}, cookie)
}

func browserFrom(ctx context.Context) string {
	cookie, _ := ctx.Value(browserKey{}).(string)
	return cookie
}
