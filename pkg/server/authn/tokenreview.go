package authn

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	authenticationrest "k8s.io/kubernetes/pkg/registry/authentication/rest"
	"k8s.io/kubernetes/pkg/registry/authentication/tokenreview"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// StorageProvider is upstream's provider of the group authentication.k8s.io, with a
// TokenReview that knows the cluster it is asked in: a service account's token is good
// there only if it is one of that cluster.
type StorageProvider struct {
	authenticationrest.RESTStorageProvider
}

// NewRESTStorage replaces upstream's tokenreviews.
func (p StorageProvider) NewRESTStorage(resources serverstorage.APIResourceConfigSource, options generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info, err := p.RESTStorageProvider.NewRESTStorage(resources, options)
	if err != nil {
		return info, err
	}
	for _, storage := range info.VersionedResourcesStorageMap {
		if _, ok := storage["tokenreviews"].(*tokenreview.REST); ok {
			storage["tokenreviews"] = &tokenReviews{
				REST:          tokenreview.NewREST(p.Authenticator, p.APIAudiences),
				authenticator: p.Authenticator,
				audiences:     p.APIAudiences,
			}
		}
	}
	return info, nil
}

// tokenReviews gives upstream's storage, for each review, an authenticator that adds the
// review's cluster to the request that upstream makes up without a context.
type tokenReviews struct {
	*tokenreview.REST
	authenticator authenticator.Request
	audiences     authenticator.Audiences
}

var _ rest.Creater = &tokenReviews{}

func (t *tokenReviews) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	cluster, err := logicalcluster.FromContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot review a token: %w", err)
	}
	inCluster := authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		return t.authenticator.AuthenticateRequest(req.WithContext(logicalcluster.WithCluster(req.Context(), cluster)))
	})
	return tokenreview.NewREST(inCluster, t.audiences).Create(ctx, obj, validate, options)
}
