package server

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversions "k8s.io/kubernetes/pkg/apis/core/v1"

	"github.com/13eedeaf/kcp/pkg/idp"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/server/authn"
	"github.com/13eedeaf/kcp/pkg/server/authz"
	"github.com/13eedeaf/kcp/pkg/server/options"
	"github.com/13eedeaf/kcp/pkg/server/pki"
	"github.com/13eedeaf/kcp/pkg/server/storage"
)

// newAuthenticator builds who-are-you; provider is nil without an embedded one.
func newAuthenticator(ctx context.Context, o options.Completed, keys *pki.PKI, cfg *config, provider *idp.Provider) (authenticator.Request, error) {
	ca, err := os.ReadFile(keys.ClientCAFile)
	if err != nil {
		return nil, err
	}
	clientCA, err := dynamiccertificates.NewStaticCAContent("client-ca", ca)
	if err != nil {
		return nil, err
	}
	c := authn.Config{
		ClientCA: clientCA,
		ServiceAccounts: &authn.ServiceAccounts{
			Issuer: serviceAccountIssuer,
			Keys:   []any{keys.ServiceAccountKey},
			Getter: tokenObjects{cfg.registry},
		},
		File:           o.AuthenticationConfig,
		Anonymous:      true,
		Audiences:      cfg.controlPlane.Generic.Authentication.APIAudiences,
		ServicesPrefix: authz.ServicesPrefix,
		APIServerID:    cfg.controlPlane.Generic.APIServerID,
	}
	if provider != nil {
		c.Embedded = &authn.EmbeddedIssuer{URL: o.URL + idpPath, ClientID: idp.ClientID, Transport: provider.Transport()}
	}
	return authn.New(ctx, c)
}

// tokenObjects reads what service account tokens refer to from the watch caches.
type tokenObjects struct{ registry *storage.Registry }

var _ authn.ObjectGetter = tokenObjects{}

func (t tokenObjects) GetServiceAccount(ctx context.Context, cluster logicalcluster.Name, namespace, name string) (*corev1.ServiceAccount, error) {
	in, out := &core.ServiceAccount{}, &corev1.ServiceAccount{}
	if err := t.get(ctx, cluster, "serviceaccounts", namespace, name, in); err != nil {
		return nil, err
	}
	return out, corev1conversions.Convert_core_ServiceAccount_To_v1_ServiceAccount(in, out, nil)
}

func (t tokenObjects) GetSecret(ctx context.Context, cluster logicalcluster.Name, namespace, name string) (*corev1.Secret, error) {
	in, out := &core.Secret{}, &corev1.Secret{}
	if err := t.get(ctx, cluster, "secrets", namespace, name, in); err != nil {
		return nil, err
	}
	return out, corev1conversions.Convert_core_Secret_To_v1_Secret(in, out, nil)
}

func (t tokenObjects) GetPod(ctx context.Context, cluster logicalcluster.Name, namespace, name string) (*corev1.Pod, error) {
	in, out := &core.Pod{}, &corev1.Pod{}
	if err := t.get(ctx, cluster, "pods", namespace, name, in); err != nil {
		return nil, err
	}
	return out, corev1conversions.Convert_core_Pod_To_v1_Pod(in, out, nil)
}

// get reads from the cache, and from etcd what the cache does not have: a token may be
// used right after its account was made.
func (t tokenObjects) get(ctx context.Context, cluster logicalcluster.Name, resource, namespace, name string, out runtime.Object) error {
	ctx = logicalcluster.WithCluster(ctx, cluster)
	reader := t.registry.Reader(core.Resource(resource))
	err := reader.Get(ctx, namespace, name, out)
	if apistorage.IsNotFound(err) {
		err = reader.GetLive(ctx, namespace, name, out)
	}
	if apistorage.IsNotFound(err) {
		return apierrors.NewNotFound(core.Resource(resource), name)
	}
	return err
}
