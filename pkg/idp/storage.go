package idp

import (
	"context"
	"errors"
	"slices"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

var (
	errNotFound       = errors.New("unknown or expired")
	errNoSecrets      = errors.New("this provider has no client with a secret")
	errTooManySignIns = errors.New("too many sign-ins are under way")
)

// storage is the state behind the library's protocol. It is safe for concurrent use.
type storage struct {
	client client
	users  *userStore
	grants *grants
	key    *signingKey
	now    func() time.Time

	requests *pending[authRequest]
	// codes leads from an authorization code to the id of its request.
	codes  *pending[string]
	access *pending[accessToken]
	// devices is keyed by device code, userCodes leads to it from the typed code.
	devices   *pending[op.DeviceAuthorizationState]
	userCodes *pending[string]
}

type accessToken struct {
	subject, clientID string
	scopes            []string
}

var (
	_ op.Storage                    = &storage{}
	_ op.CanSetUserinfoFromRequest  = &storage{}
	_ op.DeviceAuthorizationStorage = &storage{}
)

func newStorage(issuer string, users *userStore, g *grants, key *signingKey, now func() time.Time) *storage {
	return &storage{
		client:    client{issuer: issuer},
		users:     users,
		grants:    g,
		key:       key,
		now:       now,
		requests:  newPending[authRequest](now),
		codes:     newPending[string](now),
		access:    newPending[accessToken](now),
		devices:   newPending[op.DeviceAuthorizationState](now),
		userCodes: newPending[string](now),
	}
}

// CreateAuthRequest begins a sign-in. The library has checked client, redirect, scopes
// and response type.
func (s *storage) CreateAuthRequest(ctx context.Context, req *oidc.AuthRequest, _ string) (op.AuthRequest, error) {
	if slices.Contains(req.Prompt, oidc.PromptNone) {
		return nil, oidc.ErrLoginRequired()
	}
	if req.CodeChallenge == "" || req.CodeChallengeMethod != oidc.CodeChallengeMethodS256 {
		return nil, oidc.ErrInvalidRequest().WithDescription("PKCE with code_challenge_method S256 is required")
	}
	r := authRequest{id: randomToken(), browser: browserFrom(ctx), request: *req}
	if !s.requests.put(r.id, r, signInLifetime) {
		return nil, oidc.ErrServerError().WithParent(errTooManySignIns).WithDescription("too many sign-ins are under way")
	}
	return &r, nil
}

func (s *storage) AuthRequestByID(_ context.Context, id string) (op.AuthRequest, error) {
	r, ok := s.requests.get(id)
	if !ok {
		return nil, errNotFound
	}
	return &r, nil
}

// AuthRequestByCode uses the code up, whatever becomes of the exchange: a code works
// once (RFC 6749, section 4.1.2).
func (s *storage) AuthRequestByCode(ctx context.Context, code string) (op.AuthRequest, error) {
	id, ok := s.codes.take(code)
	if !ok {
		return nil, errNotFound
	}
	r, ok := s.requests.take(id)
	if !ok {
		return nil, errNotFound
	}
	return &r, nil
}

// SaveAuthCode keeps the code for a minute, the time a client needs at most.
func (s *storage) SaveAuthCode(_ context.Context, id, code string) error {
	if !s.codes.put(code, id, time.Minute) {
		return errTooManySignIns
	}
	return nil
}

func (s *storage) DeleteAuthRequest(_ context.Context, id string) error {
	s.requests.take(id)
	return nil
}

// finish marks the sign-in as done by a user.
func (s *storage) finish(id string, u user) bool {
	return s.requests.update(id, func(r *authRequest) {
		r.subject, r.authTime, r.done = u.subject(), s.now(), true
	})
}

func (s *storage) CreateAccessToken(_ context.Context, req op.TokenRequest) (string, time.Time, error) {
	id := randomToken()
	token := accessToken{subject: req.GetSubject(), clientID: s.client.GetID(), scopes: req.GetScopes()}
	if !s.access.put(id, token, idTokenLifetime) {
		return "", time.Time{}, errors.New("too many access tokens are valid")
	}
	return id, s.now().Add(idTokenLifetime), nil
}

func (s *storage) CreateAccessAndRefreshTokens(ctx context.Context, req op.TokenRequest, current string) (id, refresh string, expires time.Time, err error) {
	id, expires, err = s.CreateAccessToken(ctx, req)
	if err != nil {
		return "", "", time.Time{}, err
	}
	if current != "" {
		refresh, err = s.grants.rotate(current)
		return id, refresh, expires, err
	}
	g := grant{ClientID: s.client.GetID(), Subject: req.GetSubject(), Scopes: req.GetScopes(), AuthTime: s.now()}
	if signedIn, ok := req.(op.IDTokenRequest); ok {
		g.AMR, g.AuthTime = signedIn.GetAMR(), signedIn.GetAuthTime()
	}
	refresh, err = s.grants.create(g)
	return id, refresh, expires, err
}

// TokenRequestByRefreshToken refuses the token of a user who is no longer in the file.
func (s *storage) TokenRequestByRefreshToken(_ context.Context, token string) (op.RefreshTokenRequest, error) {
	g, err := s.grants.lookup(token)
	if err != nil {
		return nil, err
	}
	if _, ok := s.users.bySubject(g.Subject); !ok {
		return nil, errInvalidRefreshToken
	}
	return &refreshRequest{grant: g, scopes: g.Scopes}, nil
}

func (s *storage) TerminateSession(_ context.Context, subject, clientID string) error {
	return s.grants.revoke(func(g grant) bool { return g.Subject == subject && g.ClientID == clientID })
}

// RevokeToken gets the id of an access token, or the id of a grant that
// GetRefreshTokenInfo returned.
func (s *storage) RevokeToken(_ context.Context, id, _, clientID string) *oidc.Error {
	s.access.take(id)
	if err := s.grants.revoke(func(g grant) bool { return g.ID == id && g.ClientID == clientID }); err != nil {
		return oidc.ErrServerError().WithParent(err)
	}
	return nil
}

func (s *storage) GetRefreshTokenInfo(_ context.Context, _, token string) (subject, id string, err error) {
	g, err := s.grants.lookup(token)
	if errors.Is(err, errInvalidRefreshToken) {
		return "", "", op.ErrInvalidRefreshToken
	}
	return g.Subject, g.ID, err
}

func (s *storage) SigningKey(context.Context) (op.SigningKey, error) { return s.key, nil }

func (s *storage) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{s.key.SignatureAlgorithm()}, nil
}

func (s *storage) KeySet(context.Context) ([]op.Key, error) {
	return []op.Key{publicKey{s.key}}, nil
}

func (s *storage) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	if id != s.client.GetID() {
		return nil, errNotFound
	}
	return s.client, nil
}

func (s *storage) AuthorizeClientIDSecret(context.Context, string, string) error {
	return errNoSecrets
}

// SetUserinfoFromScopes is superseded by SetUserinfoFromRequest.
func (s *storage) SetUserinfoFromScopes(context.Context, *oidc.UserInfo, string, string, []string) error {
	return nil
}

// SetUserinfoFromRequest fills in the claims of an ID token.
func (s *storage) SetUserinfoFromRequest(_ context.Context, info *oidc.UserInfo, req op.IDTokenRequest, scopes []string) error {
	return s.setUserinfo(info, req.GetSubject(), scopes)
}

func (s *storage) SetUserinfoFromToken(_ context.Context, info *oidc.UserInfo, id, subject, _ string) error {
	token, ok := s.access.get(id)
	if !ok || token.subject != subject {
		return errNotFound
	}
	return s.setUserinfo(info, subject, token.scopes)
}

// setUserinfo always says who the user is by name: the server maps preferred_username,
// and asking for the profile scope only for that would help nobody.
func (s *storage) setUserinfo(info *oidc.UserInfo, subject string, scopes []string) error {
	u, ok := s.users.bySubject(subject)
	if !ok {
		return errNotFound
	}
	info.Subject = subject
	info.PreferredUsername = u.Username
	info.Name = u.Name
	if info.Name == "" {
		info.Name = u.Username
	}
	if slices.Contains(scopes, oidc.ScopeEmail) && u.Email != "" {
		info.Email = u.Email
		// Whoever can write the file vouches for it.
		info.EmailVerified = true
	}
	if slices.Contains(scopes, "groups") {
		info.AppendClaims("groups", slices.Concat([]string{}, u.Groups))
	}
	return nil
}

// SetIntrospectionFromToken always fails: introspection needs a client with a secret.
func (s *storage) SetIntrospectionFromToken(context.Context, *oidc.IntrospectionResponse, string, string, string) error {
	return errNoSecrets
}

func (s *storage) GetPrivateClaimsFromScopes(context.Context, string, string, []string) (map[string]any, error) {
	return nil, nil
}

func (s *storage) GetKeyByIDAndClientID(context.Context, string, string) (*jose.JSONWebKey, error) {
	return nil, errNoSecrets
}

func (s *storage) ValidateJWTProfileScopes(context.Context, string, []string) ([]string, error) {
	return nil, errNoSecrets
}

func (s *storage) Health(context.Context) error { return nil }
