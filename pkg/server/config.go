// Package server assembles the API server: options become a config, the config a server.
//
// It stands on upstream's generic control plane and replaces, on the config that
// upstream builds, what knows one cluster only: storage, authentication, authorization,
// admission. The rest, from request handling to discovery, is upstream's.
package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionsoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/webhook"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	controlplaneoptions "k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"

	kcpadmission "github.com/13eedeaf/kcp/pkg/server/admission"
	"github.com/13eedeaf/kcp/pkg/server/authn"
	"github.com/13eedeaf/kcp/pkg/server/authz"
	"github.com/13eedeaf/kcp/pkg/server/crds"
	"github.com/13eedeaf/kcp/pkg/server/storage"
)

// config is upstream's config with the cluster-aware parts put in.
type config struct {
	controlPlane *controlplaneapiserver.Config
	registry     *storage.Registry
	authorizer   *authz.Authorizer
	// crdRESTOptions makes the storage of custom resources.
	crdRESTOptions generic.RESTOptionsGetter
}

// deps are the parts that the config is completed with; they need the config's loopback
// client themselves, so they are made in between.
type deps struct {
	resolver PathResolver
	// admission is the chain of admission plugins.
	admission admission.Interface
	// authenticator says who sends a request.
	authenticator authenticator.Request
	// public serves what needs no authentication; a path that it does not know goes on.
	public *http.ServeMux
}

// newConfig builds the config from upstream's completed options.
func newConfig(opts controlplaneoptions.CompletedOptions) (*config, error) {
	resources := controlplane.DefaultAPIResourceConfigSource()
	generic, informers, storageFactory, err := controlplaneapiserver.BuildGenericConfig(
		opts,
		[]*runtime.Scheme{legacyscheme.Scheme, apiextensionsapiserver.Scheme},
		resources,
		generatedopenapi.GetOpenAPIDefinitions,
		nil,
	)
	if err != nil {
		return nil, err
	}
	registry := storage.NewRegistry(core.Resource("events"))
	definitions, err := crds.System()
	if err != nil {
		return nil, err
	}
	for _, crd := range definitions {
		gr := schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}
		registry.Expect(gr, opts.Etcd.StorageConfig.Prefix, gr.Group+"/"+gr.Resource)
	}
	crdRESTOptions := apiextensionsoptions.NewCRDRESTOptionsGetter(*opts.Etcd, generic.ResourceTransformers, generic.StorageObjectCountTracker)
	generic.RESTOptionsGetter = registry.Wrap(generic.RESTOptionsGetter)
	authorizer := authz.New(registry)
	generic.Authorization.Authorizer = authorizer
	generic.RuleResolver = authorizer
	generic.LongRunningFunc = longRunning()
	if generic.FlowControl != nil {
		generic.FlowControl = blindToWatches{generic.FlowControl}
	}
	// It watches over tokens without an end, in Secrets, which are not accepted here.
	generic.DisabledPostStartHooks.Insert("start-legacy-token-tracking-controller")
	// A rate limit on the server's own client would only delay its controllers: priority
	// and fairness exempts system:masters too.
	generic.LoopbackClientConfig.QPS = -1

	// Upstream prepares admission plugins that are not used here, and registers their
	// informers, for kinds that are not served. They go to a factory that never starts.
	unused := kubeinformers.NewSharedInformerFactory(nil, 0)
	cp, _, err := controlplaneapiserver.CreateConfig(opts, generic, unused, nil, storageFactory, webhook.NewDefaultServiceResolver(), nil)
	if err != nil {
		return nil, err
	}
	cp.VersionedInformers = informers
	return &config{
		controlPlane:   cp,
		registry:       registry,
		authorizer:     authorizer,
		crdRESTOptions: registry.Wrap(crdRESTOptions),
	}, nil
}

// blindToWatches is priority and fairness that does not charge a write for who watches:
// upstream counts watchers by resource and namespace, those of all clusters together, and
// a tenant's write would cost the more the more other tenants there are.
type blindToWatches struct{ flowcontrol.Interface }

// GetInterestedWatchCount implements flowcontrol.WatchTracker.
func (blindToWatches) GetInterestedWatchCount(*request.RequestInfo) int { return 0 }

// complete puts in what had to wait for the loopback client.
func (c *config) complete(d deps) {
	generic := c.controlPlane.Generic
	generic.AdmissionControl = d.admission
	generic.Authentication.Authenticator = d.authenticator
	build := generic.BuildHandlerChainFunc
	if build == nil {
		build = genericapiserver.DefaultBuildHandlerChain
	}
	generic.BuildHandlerChainFunc = func(apiHandler http.Handler, gc *genericapiserver.Config) http.Handler {
		handler := build(authn.WithLocalServiceAccounts(kcpadmission.FilterSystemOwned(withinWorkspace(apiHandler))), gc)
		handler = kcpadmission.WithOwnIdentity(authn.FilterImpersonation(handler))
		handler = withCluster(withReadableRefusals(handler), d.resolver)
		return withPublic(handler, d.public, gc)
	}
}

// loopback returns the config of the server's own client. Its host has no path: each
// use adds /clusters/<name>.
func (c *config) loopback() *rest.Config {
	return rest.CopyConfig(c.controlPlane.Generic.LoopbackClientConfig)
}

// waitReady polls the server's own readiness endpoint. It returns nil as soon as every
// check passes.
func waitReady(ctx context.Context, cfg *rest.Config) error {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	var last string
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			last = resp.Status
		} else {
			last = err.Error()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server did not become ready: %s: %w", last, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
