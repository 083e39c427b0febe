package storage

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// clusterStorage is one resource's storage for all clusters. The keys it is called with
// carry no cluster.
type clusterStorage struct {
	storage.Interface // a cacher, or etcd directly; its keys carry the cluster
	prefix            string
	newFunc           func() runtime.Object
	newListFunc       func() runtime.Object
	// cached says that watchers can be indexed by cluster.
	cached bool

	// etcdPrefix, codec and transformer are how Interface stores objects.
	etcdPrefix  string
	codec       runtime.Codec
	transformer value.Transformer
}

// objectKey returns the key of one object, or of a prefix, in the context's cluster.
func (s *clusterStorage) objectKey(ctx context.Context, key string) (string, logicalcluster.Name, error) {
	cluster, err := logicalcluster.FromContext(ctx)
	if err != nil {
		return "", "", apierrors.NewInternalError(fmt.Errorf("storage of %s: %w", s.prefix, err))
	}
	if cluster == logicalcluster.Wildcard {
		return "", "", apierrors.NewBadRequest("the wildcard cluster serves only list and watch")
	}
	if !cluster.Valid() {
		return "", "", apierrors.NewInternalError(fmt.Errorf("storage of %s: %q is no cluster name", s.prefix, cluster))
	}
	suffix, err := keySuffix(s.prefix, key)
	if err != nil {
		return "", "", apierrors.NewInternalError(err)
	}
	return s.prefix + "/" + string(cluster) + suffix, cluster, nil
}

// scope returns key and options for a list or watch. For the wildcard it is the bare
// prefix, with the namespace of the key as a field selector: <prefix>/<ns> would be read
// as a cluster.
func (s *clusterStorage) scope(ctx context.Context, key string, opts storage.ListOptions) (string, storage.ListOptions, error) {
	if cluster, err := logicalcluster.FromContext(ctx); err != nil || cluster != logicalcluster.Wildcard {
		key, _, err = s.objectKey(ctx, key)
		return key, opts, err
	}
	suffix, err := keySuffix(s.prefix, key)
	if err != nil {
		return "", opts, apierrors.NewInternalError(err)
	}
	// A key for a single name comes with a metadata.name selector, which stays in the
	// predicate; only the namespace is known from the key alone.
	segments := strings.Split(strings.Trim(suffix, "/"), "/")
	if namespace := segments[0]; namespace != "" && (opts.Recursive || len(segments) > 1) {
		opts.Predicate.Field = and(opts.Predicate.Field, "metadata.namespace", namespace)
	}
	opts.Recursive = true
	return s.prefix, opts, nil
}

func and(selector fields.Selector, field, value string) fields.Selector {
	term := fields.OneTermEqualSelector(field, value)
	if selector == nil || selector.Empty() {
		return term
	}
	return fields.AndSelectors(selector, term)
}

func stamp(obj runtime.Object, cluster logicalcluster.Name) error {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	annotations := accessor.GetAnnotations()
	if annotations[logicalcluster.AnnotationKey] == string(cluster) {
		return nil
	}
	// The map may be shared with another object, so it is copied.
	with := make(map[string]string, len(annotations)+1)
	for k, v := range annotations {
		with[k] = v
	}
	with[logicalcluster.AnnotationKey] = string(cluster)
	accessor.SetAnnotations(with)
	return nil
}

func (s *clusterStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	key, cluster, err := s.objectKey(ctx, key)
	if err != nil {
		return err
	}
	if err := stamp(obj, cluster); err != nil {
		return err
	}
	if err := untrack(ctx, obj); err != nil {
		return err
	}
	return s.Interface.Create(ctx, key, obj, out, ttl)
}

func (s *clusterStorage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	key, _, err := s.objectKey(ctx, key)
	if err != nil {
		return err
	}
	return s.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
}

func (s *clusterStorage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	key, _, err := s.objectKey(ctx, key)
	if err != nil {
		return err
	}
	return s.Interface.Get(ctx, key, opts, out)
}

func (s *clusterStorage) GuaranteedUpdate(ctx context.Context, key string, dest runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	key, cluster, err := s.objectKey(ctx, key)
	if err != nil {
		return err
	}
	stamped := func(input runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
		out, ttl, err := tryUpdate(input, meta)
		if err != nil {
			return nil, nil, err
		}
		if err := stamp(out, cluster); err != nil {
			return nil, nil, err
		}
		return out, ttl, untrack(ctx, out)
	}
	return s.Interface.GuaranteedUpdate(ctx, key, dest, ignoreNotFound, preconditions, stamped, cached)
}

func (s *clusterStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	key, opts, err := s.scope(ctx, key, opts)
	if err != nil {
		return err
	}
	return s.Interface.GetList(ctx, key, opts, list)
}

func (s *clusterStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	key, opts, err := s.scope(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	cluster, err := logicalcluster.FromContext(ctx)
	if err != nil {
		return nil, err
	}
	if !s.cached {
		return s.Interface.Watch(ctx, key, opts)
	}
	// A watch that begins with the present state would make the cacher walk all objects
	// of all clusters. List what is asked for instead, and watch from there.
	initial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	legacy := opts.SendInitialEvents == nil && (opts.ResourceVersion == "" || opts.ResourceVersion == "0")
	if initial || legacy {
		return s.watchFromList(ctx, key, opts, initial, cluster)
	}
	return s.Interface.Watch(ctx, key, s.indexed(opts, cluster))
}

// indexed adds the cluster to the fields of a watch, so that the cacher finds its
// watchers by cluster. The wildcard is left as it is: it gets all events.
func (s *clusterStorage) indexed(opts storage.ListOptions, cluster logicalcluster.Name) storage.ListOptions {
	if cluster == logicalcluster.Wildcard {
		return opts
	}
	pred := opts.Predicate
	pred.Field = and(pred.Field, clusterField, string(cluster))
	pred.IndexFields = append([]string{clusterField}, pred.IndexFields...)
	if pred.GetAttrs != nil {
		pred.GetAttrs = attrsWithCluster(pred.GetAttrs)
	}
	opts.Predicate = pred
	return opts
}
