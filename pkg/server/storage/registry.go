// Package storage makes upstream's storage layer aware of logical clusters.
//
// It stands at one seam, generic.StorageDecorator: every registry store, native or
// custom resource, gets its storage.Interface from a Registry, which
//
//   - rewrites each key <prefix>/<ns>/<name> to <prefix>/<cluster>/<ns>/<name>, with the
//     cluster of the request's context. No cluster in the context is an error;
//   - stamps the annotation kcp.io/cluster on what is written, so that a value sent by a
//     client is overwritten;
//   - keeps one watch cache per resource for all clusters, and indexes its watchers by
//     cluster, so that an event costs the watchers of its own cluster only;
//   - serves the wildcard cluster for list and watch, and refuses it for everything else.
//
// Beside it the Registry does what concerns a cluster as a whole, in one transaction and
// past the API: Fill makes the first objects of a new cluster, Content and DeleteCluster
// end one.
//
// Upstream's StorageWithCacher cannot be used: its reflector would collapse objects of
// equal namespace and name from different clusters while it starts.
package storage

import (
	"fmt"
	"path"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// clusterField is the field under which watchers are indexed. It never leaves the
// process: clients cannot select by it.
const clusterField = "kcp.io/cluster"

// Registry makes and remembers the storage of each resource.
type Registry struct {
	// uncached resources are served from etcd directly; their objects are many, short
	// lived and rarely watched.
	uncached map[schema.GroupResource]bool

	clock clock.WithTicker

	mu     sync.Mutex
	stores map[schema.GroupResource]*clusterStorage
	// prefixes are those of etcd keys, up to the cluster.
	prefixes map[string]schema.GroupResource
	destroy  []func()
}

// NewRegistry returns an empty registry.
func NewRegistry(uncached ...schema.GroupResource) *Registry {
	r := &Registry{
		uncached: map[schema.GroupResource]bool{},
		clock:    clock.RealClock{},
		stores:   map[schema.GroupResource]*clusterStorage{},
		prefixes: map[string]schema.GroupResource{},
	}
	for _, gr := range uncached {
		r.uncached[gr] = true
	}
	return r
}

// store returns the storage of a resource whose registry store has been made. Its keys
// are those of the registry store: the cluster comes from the context.
func (r *Registry) store(gr schema.GroupResource) (*clusterStorage, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.stores[gr]
	if !ok {
		return nil, fmt.Errorf("no storage for resource %q", gr)
	}
	return s, nil
}

// Expect names a resource whose store is made at its first use. Without it, what an
// earlier run of the server has stored would not be found when a cluster is deleted.
func (r *Registry) Expect(gr schema.GroupResource, prefix, resourcePrefix string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.prefixes[etcdPrefix(prefix, resourcePrefix)] = gr
}

// etcdPrefix returns what keys of a resource start with in etcd, up to the slash before
// the cluster.
func etcdPrefix(prefix, resourcePrefix string) string { return path.Join("/", prefix, resourcePrefix) }

// Wrap returns a getter like inner whose storage is cluster-aware.
func (r *Registry) Wrap(inner generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return optionsGetter{registry: r, inner: inner}
}

type optionsGetter struct {
	registry *Registry
	inner    generic.RESTOptionsGetter
}

func (g optionsGetter) GetRESTOptions(gr schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	opts, err := g.inner.GetRESTOptions(gr, example)
	if err != nil {
		return opts, err
	}
	opts.Decorator = g.registry.decorate
	// It counts the objects of all clusters, by which priority and fairness would charge a
	// tenant's list.
	opts.StorageObjectCountTracker = nil
	return opts, nil
}

// decorate is the generic.StorageDecorator. The trigger and the indexers of the
// resource are dropped: a cacher takes one trigger, and ours goes by cluster; indexers
// would span clusters.
func (r *Registry) decorate(
	config *storagebackend.ConfigForResource,
	resourcePrefix string,
	keyFunc func(obj runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object,
	getAttrs storage.AttrFunc,
	_ storage.IndexerFuncs,
	_ *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	raw, destroy, err := generic.NewRawStorage(config, newFunc, newListFunc, resourcePrefix)
	if err != nil {
		return nil, nil, err
	}
	s := &clusterStorage{
		prefix: resourcePrefix, newFunc: newFunc, newListFunc: newListFunc,
		etcdPrefix: etcdPrefix(config.Prefix, resourcePrefix), codec: config.Codec, transformer: config.Transformer,
	}
	if r.uncached[config.GroupResource] {
		s.Interface = raw
		return s, r.remember(config, s, destroy), nil
	}
	c, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             trimmed(noWatchList{raw}, config.EventsHistoryWindow, r.clock),
		Versioner:           storage.APIObjectVersioner{},
		GroupResource:       config.GroupResource,
		EventsHistoryWindow: config.EventsHistoryWindow,
		ResourcePrefix:      resourcePrefix,
		KeyFunc:             clusterKeyFunc(resourcePrefix, keyFunc),
		NewFunc:             newFunc,
		NewListFunc:         newListFunc,
		GetAttrsFunc:        attrsWithCluster(getAttrs),
		IndexerFuncs:        storage.IndexerFuncs{clusterField: clusterOf},
		Codec:               config.Codec,
	})
	if err != nil {
		destroy()
		return nil, nil, fmt.Errorf("cannot make the watch cache of %q: %w", config.GroupResource, err)
	}
	delegator := cacher.NewCacheDelegator(c, raw)
	s.Interface, s.cached = delegator, true
	return s, r.remember(config, s, func() {
		delegator.Stop()
		c.Stop()
		destroy()
	}), nil
}

// remember keeps a store and returns a function that destroys it once.
func (r *Registry) remember(config *storagebackend.ConfigForResource, s *clusterStorage, destroy func()) factory.DestroyFunc {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stores[config.GroupResource] = s
	r.prefixes[s.etcdPrefix] = config.GroupResource
	once := sync.OnceFunc(destroy)
	r.destroy = append(r.destroy, once)
	return once
}

// Close ends all caches and their connections to etcd. Upstream does so for the stores of
// native kinds when its server stops, but not for custom resources.
func (r *Registry) Close() {
	r.mu.Lock()
	destroy := r.destroy
	r.destroy = nil
	r.mu.Unlock()
	for _, f := range destroy {
		f()
	}
}

// noWatchList keeps the cacher's reflector from using WatchList: it would gather objects
// in a temporary store keyed by namespace and name, where equal names of different
// clusters overwrite each other.
type noWatchList struct{ storage.Interface }

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

// clusterKeyFunc turns the key of an object into the key under which it is stored.
func clusterKeyFunc(prefix string, inner func(runtime.Object) (string, error)) func(runtime.Object) (string, error) {
	return func(obj runtime.Object) (string, error) {
		if _, ok := obj.(*filler); ok {
			return prefix + "/" + string(fillerCluster), nil
		}
		key, err := inner(obj)
		if err != nil {
			return "", err
		}
		cluster := clusterOf(obj)
		if cluster == "" {
			return "", fmt.Errorf("stored object %q carries no %s annotation", key, logicalcluster.AnnotationKey)
		}
		suffix, err := keySuffix(prefix, key)
		if err != nil {
			return "", err
		}
		return prefix + "/" + cluster + suffix, nil
	}
}

// keySuffix returns what follows prefix in key: "" or "/…".
func keySuffix(prefix, key string) (string, error) {
	suffix, ok := strings.CutPrefix(key, prefix)
	if !ok || (suffix != "" && suffix[0] != '/') {
		return "", fmt.Errorf("storage key %q does not start with %q", key, prefix)
	}
	return suffix, nil
}

// clusterOf reads the cluster that was stamped on a stored object.
func clusterOf(obj runtime.Object) string {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return string(logicalcluster.From(accessor))
}

func attrsWithCluster(inner storage.AttrFunc) storage.AttrFunc {
	return func(obj runtime.Object) (labels.Set, fields.Set, error) {
		if _, ok := obj.(*filler); ok {
			return nil, nil, nil
		}
		l, f, err := inner(obj)
		if err != nil {
			return nil, nil, err
		}
		with := make(fields.Set, len(f)+1)
		for k, v := range f {
			with[k] = v
		}
		with[clusterField] = clusterOf(obj)
		return l, with, nil
	}
}
