package authn

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// clusterClaim names the logical cluster in a service account's token.
const clusterClaim = "kcp.io/cluster"

// ObjectGetter reads what a token refers to, in the cluster that the token names. The
// errors are API errors; NotFound makes the token invalid.
type ObjectGetter interface {
	GetServiceAccount(ctx context.Context, cluster logicalcluster.Name, namespace, name string) (*corev1.ServiceAccount, error)
	GetSecret(ctx context.Context, cluster logicalcluster.Name, namespace, name string) (*corev1.Secret, error)
	GetPod(ctx context.Context, cluster logicalcluster.Name, namespace, name string) (*corev1.Pod, error)
}

// ServiceAccounts validates tokens made by NewTokenGenerator. Tokens of the old kind, in
// Secrets and without an end, are not accepted.
type ServiceAccounts struct {
	// Issuer is the iss of the tokens.
	Issuer string
	// Keys verify the signature: public keys, or private ones for their public half.
	Keys []any
	// Getter looks up the service account and the Secret or Pod that a token is bound to.
	Getter ObjectGetter
}

// NewTokenGenerator returns a generator whose tokens carry the logical cluster of the
// request that asks for them. Without one, and for the wildcard, it refuses. It goes
// into the control plane's Extra.ServiceAccountIssuer; upstream's TokenRequest passes
// the request's context.
func NewTokenGenerator(issuer string, key any) (serviceaccount.TokenGenerator, error) {
	generator, err := serviceaccount.JWTTokenGenerator(issuer, key)
	if err != nil {
		return nil, fmt.Errorf("cannot sign service account tokens: %w", err)
	}
	return tokenGenerator{generator}, nil
}

type tokenGenerator struct{ next serviceaccount.TokenGenerator }

func (g tokenGenerator) GenerateToken(ctx context.Context, claims *jwt.Claims, private any) (string, error) {
	cluster, err := logicalcluster.FromContext(ctx)
	if err != nil {
		return "", err
	}
	if !cluster.Valid() {
		return "", fmt.Errorf("cannot issue a token for cluster %q", cluster)
	}
	// The type of the private claims is upstream's own, so the claim is added to their
	// JSON.
	data, err := json.Marshal(private)
	if err != nil {
		return "", fmt.Errorf("cannot encode the token's claims: %w", err)
	}
	merged := map[string]any{}
	if err := json.Unmarshal(data, &merged); err != nil {
		return "", fmt.Errorf("cannot encode the token's claims: %w", err)
	}
	merged[clusterClaim] = string(cluster)
	return g.next.GenerateToken(ctx, claims, merged)
}

func (s *ServiceAccounts) authenticator(audiences authenticator.Audiences) (authenticator.Token, error) {
	keys, err := serviceaccount.StaticPublicKeysGetter(s.Keys)
	if err != nil {
		return nil, fmt.Errorf("cannot use the keys of service account tokens: %w", err)
	}
	validator := serviceaccount.NewValidator(clusterGetter{s.Getter})
	return &serviceAccountAuthenticator{
		issuer: s.Issuer,
		next:   serviceaccount.JWTTokenAuthenticator([]string{s.Issuer}, keys, audiences, validator),
	}, nil
}

// serviceAccountAuthenticator tells upstream's validation, through the context, which
// cluster the token names. The claim is read before the signature is verified, but from
// the same bytes, and upstream looks nothing up before it has verified them.
type serviceAccountAuthenticator struct {
	issuer string
	next   authenticator.Token
}

func (a *serviceAccountAuthenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	claims, ok := unverifiedClaims(token)
	if !ok || claims.Issuer != a.issuer {
		return nil, false, nil
	}
	if !claims.Cluster.Valid() {
		return nil, false, errors.New("service account token names no logical cluster")
	}
	resp, ok, err := a.next.AuthenticateToken(logicalcluster.WithCluster(ctx, claims.Cluster), token)
	if err != nil || !ok {
		return nil, false, err
	}
	return &authenticator.Response{
		Audiences: resp.Audiences,
		User:      withExtra(resp.User, ClusterKey, string(claims.Cluster)),
	}, true, nil
}

type tokenClaims struct {
	Issuer  string              `json:"iss"`
	Cluster logicalcluster.Name `json:"kcp.io/cluster"`
}

// unverifiedClaims decodes a JWT without looking at its signature.
func unverifiedClaims(token string) (tokenClaims, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return tokenClaims{}, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return tokenClaims{}, false
	}
	var claims tokenClaims
	if err := json.Unmarshal(payload, &claims); err != nil {
		return tokenClaims{}, false
	}
	return claims, true
}

// clusterGetter adapts an ObjectGetter to upstream's interface: the cluster comes from
// the context that serviceAccountAuthenticator made. Tokens bound to nodes or webhook
// configurations are not issued here, so those are never found.
type clusterGetter struct{ next ObjectGetter }

var _ serviceaccount.ServiceAccountTokenGetter = clusterGetter{}

func (g clusterGetter) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	cluster, err := logicalcluster.FromContext(ctx)
	if err != nil {
		return nil, err
	}
	return g.next.GetServiceAccount(ctx, cluster, namespace, name)
}

func (g clusterGetter) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	cluster, err := logicalcluster.FromContext(ctx)
	if err != nil {
		return nil, err
	}
	return g.next.GetSecret(ctx, cluster, namespace, name)
}

func (g clusterGetter) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	cluster, err := logicalcluster.FromContext(ctx)
	if err != nil {
		return nil, err
	}
	return g.next.GetPod(ctx, cluster, namespace, name)
}

func (clusterGetter) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

func (clusterGetter) GetValidatingWebhookConfiguration(_ context.Context, name string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return nil, apierrors.NewNotFound(webhookResource("validatingwebhookconfigurations"), name)
}

func (clusterGetter) GetMutatingWebhookConfiguration(_ context.Context, name string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return nil, apierrors.NewNotFound(webhookResource("mutatingwebhookconfigurations"), name)
}

func webhookResource(name string) schema.GroupResource {
	return schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: name}
}
