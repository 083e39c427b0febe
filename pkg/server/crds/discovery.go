package crds

import (
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

var (
	resourceVerbs    = metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	subresourceVerbs = metav1.Verbs{"get", "patch", "update"}
)

// Priorities of the groups in discovery: behind the native groups, so that an
// unqualified name means the native kind.
const (
	groupPriority   = 1000
	versionPriority = 100
)

// installDiscovery lists a group version in all of the server's discovery documents.
func installDiscovery(s *genericapiserver.GenericAPIServer, gv schema.GroupVersion, group []*apiextensionsv1.CustomResourceDefinition) {
	version := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	apiGroup := metav1.APIGroup{
		Name:             gv.Group,
		Versions:         []metav1.GroupVersionForDiscovery{version},
		PreferredVersion: version,
	}
	s.DiscoveryGroupManager.AddGroup(apiGroup)

	resources := discoveryResources(group)
	codecs := apiextensionsapiserver.Codecs
	mux := s.Handler.NonGoRestfulMux
	mux.Handle("/apis/"+gv.Group, discovery.NewAPIGroupHandler(codecs, apiGroup))
	mux.Handle("/apis/"+gv.String(), discovery.NewAPIVersionHandler(codecs, gv, discovery.APIResourceListerFunc(func() []metav1.APIResource {
		return resources
	})))

	if s.AggregatedDiscoveryGroupManager == nil {
		return
	}
	manager := s.AggregatedDiscoveryGroupManager.WithSource(aggregated.CRDSource)
	manager.AddGroupVersion(gv.Group, apidiscoveryv2.APIVersionDiscovery{
		Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
		Version:   gv.Version,
		Resources: aggregatedResources(gv, group),
	})
	manager.SetGroupVersionPriority(metav1.GroupVersion(gv), groupPriority, versionPriority)
}

func discoveryResources(group []*apiextensionsv1.CustomResourceDefinition) []metav1.APIResource {
	var out []metav1.APIResource
	for _, crd := range group {
		names, namespaced := crd.Status.AcceptedNames, crd.Spec.Scope == apiextensionsv1.NamespaceScoped
		out = append(out, metav1.APIResource{
			Name:         names.Plural,
			SingularName: names.Singular,
			Namespaced:   namespaced,
			Kind:         names.Kind,
			Verbs:        resourceVerbs,
			ShortNames:   names.ShortNames,
			Categories:   names.Categories,
		})
		if hasStatus(crd) {
			out = append(out, metav1.APIResource{Name: names.Plural + "/status", Namespaced: namespaced, Kind: names.Kind, Verbs: subresourceVerbs})
		}
	}
	return out
}

func aggregatedResources(gv schema.GroupVersion, group []*apiextensionsv1.CustomResourceDefinition) []apidiscoveryv2.APIResourceDiscovery {
	var out []apidiscoveryv2.APIResourceDiscovery
	for _, crd := range group {
		names := crd.Status.AcceptedNames
		kind := &metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: names.Kind}
		resource := apidiscoveryv2.APIResourceDiscovery{
			Resource:         names.Plural,
			SingularResource: names.Singular,
			Scope:            apidiscoveryv2.ScopeCluster,
			ResponseKind:     kind,
			Verbs:            resourceVerbs,
			ShortNames:       names.ShortNames,
			Categories:       names.Categories,
		}
		if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
			resource.Scope = apidiscoveryv2.ScopeNamespace
		}
		if hasStatus(crd) {
			resource.Subresources = []apidiscoveryv2.APISubresourceDiscovery{
				{Subresource: "status", ResponseKind: kind, Verbs: subresourceVerbs},
			}
		}
		out = append(out, resource)
	}
	return out
}

func hasStatus(crd *apiextensionsv1.CustomResourceDefinition) bool {
	sub := crd.Spec.Versions[0].Subresources
	return sub != nil && sub.Status != nil
}
