package idp

import (
	"net/url"
	"slices"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// client is the one public native client, the command line. The library ignores the
// port of a loopback redirect (RFC 8252, section 7.3) and requires PKCE of a client
// that has no secret; CreateAuthRequest requires S256.
type client struct{ issuer string }

var _ op.Client = client{}

func (client) GetID() string                       { return ClientID }
func (client) RedirectURIs() []string              { return []string{"http://127.0.0.1/callback"} }
func (client) PostLogoutRedirectURIs() []string    { return nil }
func (client) ApplicationType() op.ApplicationType { return op.ApplicationTypeNative }
func (client) AuthMethod() oidc.AuthMethod         { return oidc.AuthMethodNone }
func (client) ResponseTypes() []oidc.ResponseType {
	return []oidc.ResponseType{oidc.ResponseTypeCode}
}
func (client) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeCode, oidc.GrantTypeRefreshToken, oidc.GrantTypeDeviceCode}
}
func (c client) LoginURL(id string) string          { return c.issuer + "/login?id=" + url.QueryEscape(id) }
func (client) AccessTokenType() op.AccessTokenType  { return op.AccessTokenTypeBearer }
func (client) IDTokenLifetime() time.Duration       { return idTokenLifetime }
func (client) DevMode() bool                        { return false }
func (client) IsScopeAllowed(scope string) bool     { return slices.Contains(Scopes, scope) }
func (client) IDTokenUserinfoClaimsAssertion() bool { return true }
func (client) ClockSkew() time.Duration             { return 0 }

//nolint:revive // the name is the library's
func (client) RestrictAdditionalIdTokenScopes() func([]string) []string {
	return func(scopes []string) []string { return scopes }
}
func (client) RestrictAdditionalAccessTokenScopes() func([]string) []string {
	return func(scopes []string) []string { return scopes }
}
