// Package native lists the built-in Kubernetes kinds that a workspace serves. They come
// from upstream's registries, with their validation, defaulting, printing and
// subresources.
//
// What needs a cluster network is left out: Services get no cluster IP, pods and services
// no proxy. What needs a kubelet (log, exec, attach, port-forward) goes through the
// tunnel of the physical cluster that runs the pod; see PodAccess.
package native

import (
	"slices"

	events "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/kubernetes/pkg/apis/authentication"
	"k8s.io/kubernetes/pkg/apis/authorization"
	"k8s.io/kubernetes/pkg/apis/coordination"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/flowcontrol"
	"k8s.io/kubernetes/pkg/apis/rbac"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"
	printerstorage "k8s.io/kubernetes/pkg/printers/storage"
	appsrest "k8s.io/kubernetes/pkg/registry/apps/rest"
	autoscalingrest "k8s.io/kubernetes/pkg/registry/autoscaling/rest"
	batchrest "k8s.io/kubernetes/pkg/registry/batch/rest"
	endpointsstore "k8s.io/kubernetes/pkg/registry/core/endpoint/storage"
	pvcstore "k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim/storage"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	podtemplatestore "k8s.io/kubernetes/pkg/registry/core/podtemplate/storage"
	"k8s.io/kubernetes/pkg/registry/core/service"
	discoveryrest "k8s.io/kubernetes/pkg/registry/discovery/rest"
	networkingrest "k8s.io/kubernetes/pkg/registry/networking/rest"
	policyrest "k8s.io/kubernetes/pkg/registry/policy/rest"
)

// Provider is the type of a group's storage provider.
type Provider = controlplaneapiserver.RESTStorageProvider

// served are the groups of upstream's generic control plane that a workspace serves.
// Left out is what would be accepted and have no effect: admission registrations,
// certificate requests, storage versions and their migration.
var served = map[string]bool{
	core.GroupName:           true,
	authentication.GroupName: true,
	authorization.GroupName:  true,
	coordination.GroupName:   true,
	events.GroupName:         true,
	rbac.GroupName:           true,
	// Priority and fairness reads its configuration from the system cluster.
	flowcontrol.GroupName: true,
}

// Providers returns the groups to install: upstream's generic ones with the core group
// completed, and those of workloads.
func Providers(genericProviders []Provider, access *PodAccess) []Provider {
	out := make([]Provider, 0, len(genericProviders)+6)
	for _, p := range genericProviders {
		if !served[p.GroupName()] {
			continue
		}
		if p.GroupName() == core.GroupName {
			p = coreProvider{p, access}
		}
		out = append(out, p)
	}
	out = append(out,
		appsProvider{appsrest.StorageProvider{}},
		batchrest.RESTStorageProvider{},
		autoscalingrest.RESTStorageProvider{},
		networkingProvider{networkingrest.RESTStorageProvider{}},
		discoveryrest.StorageProvider{},
		policyrest.RESTStorageProvider{},
	)
	for i, p := range out {
		out[i] = onlyServedVersions(p)
	}
	return out
}

// networkingProvider leaves out the kinds of Services' addresses: a workspace gives none
// out.
type networkingProvider struct{ Provider }

func (p networkingProvider) NewRESTStorage(source serverstorage.APIResourceConfigSource, opts generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info, err := p.Provider.NewRESTStorage(source, opts)
	for _, storage := range info.VersionedResourcesStorageMap {
		for _, resource := range []string{"servicecidrs", "servicecidrs/status", "ipaddresses"} {
			delete(storage, resource)
		}
	}
	return info, err
}

// versioned leaves out the versions of a group of which nothing is served: upstream would
// warn of each at every start.
type versioned struct{ Provider }

// versionedWithHook is versioned for a provider that has a hook.
type versionedWithHook struct {
	versioned
	genericapiserver.PostStartHookProvider
}

func onlyServedVersions(p Provider) Provider {
	v := versioned{p}
	if hook, ok := p.(genericapiserver.PostStartHookProvider); ok {
		return versionedWithHook{v, hook}
	}
	return v
}

func (v versioned) NewRESTStorage(source serverstorage.APIResourceConfigSource, opts generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info, err := v.Provider.NewRESTStorage(source, opts)
	if err != nil {
		return info, err
	}
	info.PrioritizedVersions = slices.DeleteFunc(slices.Clone(info.PrioritizedVersions), func(gv schema.GroupVersion) bool {
		return len(info.VersionedResourcesStorageMap[gv.Version]) == 0
	})
	return info, nil
}

// coreProvider adds to upstream's generic core group (namespaces, secrets, config maps,
// service accounts, events, quotas) what a user's application is made of.
type coreProvider struct {
	Provider
	access *PodAccess
}

func (p coreProvider) NewRESTStorage(source serverstorage.APIResourceConfigSource, opts generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info, err := p.Provider.NewRESTStorage(source, opts)
	if err != nil {
		return info, err
	}
	v1 := info.VersionedResourcesStorageMap["v1"]
	// A quota that nothing enforces would be a promise broken.
	delete(v1, "resourcequotas")
	delete(v1, "resourcequotas/status")
	for _, add := range []func(generic.RESTOptionsGetter, map[string]rest.Storage) error{
		addServices, addPods, addClaims, addOthers,
	} {
		if err := add(opts, v1); err != nil {
			return info, err
		}
	}
	return info, p.access.addTo(v1)
}

func addServices(opts generic.RESTOptionsGetter, storage map[string]rest.Storage) error {
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &core.Service{} },
		NewListFunc:               func() runtime.Object { return &core.ServiceList{} },
		PredicateFunc:             service.Matcher,
		DefaultQualifiedResource:  core.Resource("services"),
		SingularQualifiedResource: core.Resource("service"),
		ReturnDeletedObject:       true,
		CreateStrategy:            service.Strategy,
		UpdateStrategy:            service.Strategy,
		DeleteStrategy:            service.Strategy,
		ResetFieldsStrategy:       service.Strategy,
		BeginCreate:               normalizeNewService,
		BeginUpdate:               normalizeChangedService,
		TableConvertor:            tables(),
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: opts, AttrFunc: service.GetAttrs}); err != nil {
		return err
	}
	status := *store
	status.UpdateStrategy = service.StatusStrategy
	status.ResetFieldsStrategy = service.StatusStrategy
	storage["services"] = named{Store: store, shortNames: []string{"svc"}, categories: []string{"all"}}
	storage["services/status"] = &statusREST{&status}
	return nil
}

func addPods(opts generic.RESTOptionsGetter, storage map[string]rest.Storage) error {
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &core.Pod{} },
		NewListFunc:               func() runtime.Object { return &core.PodList{} },
		PredicateFunc:             pod.MatchPod,
		DefaultQualifiedResource:  core.Resource("pods"),
		SingularQualifiedResource: core.Resource("pod"),
		ReturnDeletedObject:       true,
		CreateStrategy:            pod.Strategy,
		UpdateStrategy:            pod.Strategy,
		DeleteStrategy:            pod.Strategy,
		ResetFieldsStrategy:       pod.Strategy,
		TableConvertor:            tables(),
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: opts, AttrFunc: pod.GetAttrs}); err != nil {
		return err
	}
	status := *store
	status.UpdateStrategy = pod.StatusStrategy
	status.ResetFieldsStrategy = pod.StatusStrategy
	storage["pods"] = named{Store: store, shortNames: []string{"po"}, categories: []string{"all"}}
	storage["pods/status"] = &statusREST{&status}
	return nil
}

func addClaims(opts generic.RESTOptionsGetter, storage map[string]rest.Storage) error {
	claims, status, err := pvcstore.NewREST(opts)
	if err != nil {
		return err
	}
	storage["persistentvolumeclaims"] = claims
	storage["persistentvolumeclaims/status"] = status
	return nil
}

func addOthers(opts generic.RESTOptionsGetter, storage map[string]rest.Storage) error {
	endpoints, err := endpointsstore.NewREST(opts)
	if err != nil {
		return err
	}
	templates, err := podtemplatestore.NewREST(opts)
	if err != nil {
		return err
	}
	storage["endpoints"] = endpoints
	storage["podtemplates"] = templates
	return nil
}

func tables() rest.TableConvertor {
	return printerstorage.TableConvertor{TableGenerator: printers.NewTableGenerator().With(printersinternal.AddHandlers)}
}
