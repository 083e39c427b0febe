// Package authn finds out who sends a request: it builds the server's authenticator,
// which knows logical clusters.
//
// # Identities
//
//   - Client certificates of the client CA: CN is the user, O the groups.
//   - ID tokens of the issuers in --authentication-config (upstream's structured
//     authentication, reloaded live) and of the embedded provider.
//   - Service account tokens, which carry the logical cluster that issued them.
//   - Anonymous requests, where they are enabled.
//
// The server's own loopback token is added by upstream's genericapiserver, outside.
//
// # User names of issuers
//
// A user name says which issuer vouches for it, so that no issuer can speak for the
// users of another. The embedded provider's user alice is "oidc:alice", her group dev is
// "oidc:dev". For issuers in the configuration file the operator chooses the prefix;
// where there are several issuers, no prefix may be the beginning of another's (an empty
// prefix is the beginning of all), which is checked when the file is read. A name that
// an expression makes is checked against the prefixes of the others at each request.
// Every identity from an issuer carries its URL in Extra (IssuerOf) and sub as its UID
// where the mapping says so, as the embedded provider's does.
//
// # Service accounts
//
// Two clusters have service accounts of equal names, so the name alone identifies
// nobody. Their identities carry the cluster in Extra (ClusterOf), their tokens in the
// claim kcp.io/cluster, and a token is valid in that cluster only: elsewhere, and on
// /clusters/*, it is 401. Virtual workspaces (/services/) belong to no cluster: there it
// is accepted, and they must ask ClusterOf. Upstream's token cache forgets the request's
// context, and so does its TokenReview; hence the comparison stands outside the cache,
// and TokenReview is wrapped (StorageProvider).
package authn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// tokenCacheTTL is upstream's default for tokens that were found good.
const tokenCacheTTL = 10 * time.Second

// Config says which identities are accepted. All fields but Audiences are optional.
type Config struct {
	// ClientCA verifies client certificates.
	ClientCA dynamiccertificates.CAContentProvider
	// ServiceAccounts validates their tokens.
	ServiceAccounts *ServiceAccounts
	// File is an AuthenticationConfiguration (apiserver.config.k8s.io), watched for
	// changes. A token that was found good stays so for up to 10 s, as upstream.
	File string
	// Embedded is the provider that this process serves.
	Embedded *EmbeddedIssuer
	// Anonymous enables anonymous requests where File says nothing about them.
	Anonymous bool
	// Audiences of the API; service account tokens must be meant for one of them.
	Audiences authenticator.Audiences
	// ServicesPrefix is the path prefix of virtual workspaces, such as "/services/".
	ServicesPrefix string
	// APIServerID labels upstream's metrics.
	APIServerID string
}

// New builds the authenticator. ctx ends its background work: key fetching and the watch
// of the file. When New returns, tokens of the embedded issuer can be verified; other
// issuers are contacted in the background and retried, as upstream does.
func New(ctx context.Context, c Config) (authenticator.Request, error) {
	if len(c.Audiences) == 0 {
		return nil, errors.New("cannot build the authenticator: the API has no audience")
	}
	var requests []authenticator.Request
	if c.ClientCA != nil {
		requests = append(requests, x509.NewDynamic(c.ClientCA.VerifyOptions, x509.CommonNameUserConversion))
	}

	// Service accounts first: they refuse a foreign issuer at once, while the others may
	// ask theirs for new keys.
	var tokens []authenticator.Token
	var reserved []string
	if c.ServiceAccounts != nil {
		sa, err := c.ServiceAccounts.authenticator(c.Audiences)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, sa)
		reserved = append(reserved, c.ServiceAccounts.Issuer)
	}
	anon := apiserver.AnonymousAuthConfig{Enabled: c.Anonymous}
	if c.File != "" || c.Embedded != nil {
		issuers, fromFile, err := newIssuers(ctx, c, reserved)
		if err != nil {
			return nil, err
		}
		if fromFile != nil {
			anon = *fromFile
		}
		tokens = append(tokens, issuers)
	}
	if len(tokens) > 0 {
		token := tokencache.New(tokenunion.New(tokens...), true, tokenCacheTTL, 0)
		requests = append(requests, bearertoken.New(token), websocket.NewProtocolAuthenticator(token))
	}

	result := group.NewAuthenticatedGroupAdder(union.New(requests...))
	if anon.Enabled {
		// An error ends it: a bad credential is never taken for none.
		result = union.NewFailOnError(result, anonymous.NewAuthenticator(anon.Conditions))
	}
	return &clusterGuard{next: result, servicesPrefix: c.ServicesPrefix}, nil
}

// clusterGuard lets a service account act in its own cluster only. It stands outside
// every cache.
type clusterGuard struct {
	next           authenticator.Request
	servicesPrefix string
}

func (g *clusterGuard) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	resp, ok, err := g.next.AuthenticateRequest(req)
	if err != nil || !ok {
		return resp, ok, err
	}
	if err := g.check(req, resp); err != nil {
		return nil, false, err
	}
	return resp, true, nil
}

func (g *clusterGuard) check(req *http.Request, resp *authenticator.Response) error {
	if !isServiceAccount(resp.User) {
		return nil
	}
	owner, ok := ClusterOf(resp.User)
	if !ok {
		return fmt.Errorf("identity %q belongs to no logical cluster", resp.User.GetName())
	}
	if g.forServices(req) {
		return nil
	}
	if cluster := clusterOf(req); cluster != owner {
		return errors.New("service account token belongs to another logical cluster than the request")
	}
	return nil
}

// forServices reports whether the request is for a virtual workspace. A request below
// /clusters/<name>/ is not, whatever its path looks like once the prefix is stripped.
func (g *clusterGuard) forServices(req *http.Request) bool {
	return g.servicesPrefix != "" && req.URL != nil &&
		strings.HasPrefix(req.URL.Path, g.servicesPrefix) &&
		slices.Contains(outsideWorkspaces, clusterOf(req))
}
