package storage

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
)

// Reader reads one resource from its watch cache for the server's own needs
// (authorization, admission): no request, no copy of the data, no wait for etcd. What it
// returns may lag behind the last write by a few milliseconds, and is shared: callers do
// not change it.
type Reader struct {
	registry *Registry
	resource schema.GroupResource
}

// Reader returns a reader of a resource whose store need not exist yet.
func (r *Registry) Reader(gr schema.GroupResource) Reader {
	return Reader{registry: r, resource: gr}
}

// Get reads one object of the context's cluster into out, of the resource's internal
// type. Namespace is empty for objects that have none.
func (r Reader) Get(ctx context.Context, namespace, name string, out runtime.Object) error {
	return r.get(ctx, namespace, name, "0", out)
}

// GetLive is Get from etcd, for decisions that must not lag.
func (r Reader) GetLive(ctx context.Context, namespace, name string, out runtime.Object) error {
	return r.get(ctx, namespace, name, "", out)
}

func (r Reader) get(ctx context.Context, namespace, name, resourceVersion string, out runtime.Object) error {
	s, prefix, err := r.storage(namespace)
	if err != nil {
		return err
	}
	return s.Get(ctx, prefix+"/"+name, storage.GetOptions{ResourceVersion: resourceVersion}, out)
}

// List reads the objects of one namespace, or with an empty namespace all, of the
// context's cluster into list.
func (r Reader) List(ctx context.Context, namespace string, list runtime.Object) error {
	s, prefix, err := r.storage(namespace)
	if err != nil {
		return err
	}
	return s.GetList(ctx, prefix, storage.ListOptions{ResourceVersion: "0", Predicate: storage.Everything, Recursive: true}, list)
}

func (r Reader) storage(namespace string) (storage.Interface, string, error) {
	s, err := r.registry.store(r.resource)
	if err != nil {
		return nil, "", err
	}
	prefix := s.prefix
	if namespace != "" {
		prefix += "/" + namespace
	}
	return s, prefix, nil
}
