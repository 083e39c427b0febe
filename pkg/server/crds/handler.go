package crds

import (
	"context"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/builder3"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/util"
)

// Config is what the handler of system CRDs needs.
type Config struct {
	RESTOptions       generic.RESTOptionsGetter
	Admission         admission.Interface
	Authorizer        authorizer.UnconditionalAuthorizer
	RequestTimeout    time.Duration
	MinRequestTimeout time.Duration
	MaxRequestBody    int64
	OpenAPIV3         *openapicommon.OpenAPIV3Config
}

// Install serves the system CRDs below /apis/<group> on s, with discovery and OpenAPI.
// The returned function must run before the first request and until the server stops.
func Install(s *genericapiserver.GenericAPIServer, cfg Config) (run func(context.Context), err error) {
	definitions, err := System()
	if err != nil {
		return nil, err
	}
	schemas, err := builder3.BuildOpenAPIDefinitionsForResources(cfg.OpenAPIV3, util.GetCanonicalTypeName(&apiextensionsv1.CustomResourceDefinition{}))
	if err != nil {
		return nil, fmt.Errorf("cannot build the schemas that server-side apply needs: %w", err)
	}
	informer := newStaticInformer(definitions)
	handler, err := apiextensionsapiserver.NewCustomResourceDefinitionHandler(
		nil, nil, // discovery is served below
		informer,
		http.NotFoundHandler(),
		cfg.RESTOptions,
		cfg.Admission,
		nil, // nothing is left to establish
		webhook.NewDefaultServiceResolver(),
		func(webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver { return nil },
		1,
		cfg.Authorizer,
		cfg.RequestTimeout,
		cfg.MinRequestTimeout,
		schemas,
		cfg.MaxRequestBody,
	)
	if err != nil {
		return nil, err
	}
	openAPI := map[schema.GroupVersion]*spec3.OpenAPI{}
	for gv, group := range byGroupVersion(definitions) {
		installDiscovery(s, gv, group)
		if openAPI[gv], err = buildOpenAPI(gv, group); err != nil {
			return nil, err
		}
		s.Handler.NonGoRestfulMux.HandlePrefix("/apis/"+gv.Group+"/", resourceHandler(gv, handler))
	}
	return func(ctx context.Context) {
		// The service exists once the server has been prepared to run.
		if s.OpenAPIV3VersionedService != nil {
			for gv, spec := range openAPI {
				s.OpenAPIV3VersionedService.UpdateGroupVersion("apis/"+gv.String(), spec)
			}
		}
		go informer.run(ctx)
		cache.WaitForCacheSync(ctx.Done(), informer.informer.HasSynced)
	}, nil
}

// resourceHandler passes on resource paths only: upstream's handler would look for its
// own discovery documents otherwise.
func resourceHandler(gv schema.GroupVersion, next http.Handler) http.Handler {
	prefix := "/apis/" + gv.String() + "/"
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.HasPrefix(req.URL.Path, prefix) {
			http.NotFound(w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}

func byGroupVersion(definitions []*apiextensionsv1.CustomResourceDefinition) map[schema.GroupVersion][]*apiextensionsv1.CustomResourceDefinition {
	out := map[schema.GroupVersion][]*apiextensionsv1.CustomResourceDefinition{}
	for _, crd := range definitions {
		for _, v := range crd.Spec.Versions {
			gv := schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}
			out[gv] = append(out[gv], crd)
		}
	}
	for _, group := range out {
		sort.Slice(group, func(i, j int) bool { return group[i].Spec.Names.Plural < group[j].Spec.Names.Plural })
	}
	return out
}

// buildOpenAPI returns the document of a group version.
func buildOpenAPI(gv schema.GroupVersion, group []*apiextensionsv1.CustomResourceDefinition) (*spec3.OpenAPI, error) {
	specs := make([]*spec3.OpenAPI, 0, len(group))
	for _, crd := range group {
		spec, err := builder.BuildOpenAPIV3(crd, gv.Version, builder.Options{V2: false})
		if err != nil {
			return nil, fmt.Errorf("cannot build OpenAPI of system CRD %q: %w", crd.Name, err)
		}
		specs = append(specs, spec)
	}
	merged, err := builder.MergeSpecsV3(specs...)
	if err != nil {
		return nil, fmt.Errorf("cannot merge OpenAPI of %q: %w", gv, err)
	}
	return merged, nil
}
