package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Object is an object as the codec of its resource's storage takes it: of the internal
// type, or unstructured for custom resources. It is stored as it is, so whoever makes it
// does what a registry's strategy would do.
type Object struct {
	Cluster  logicalcluster.Name
	Resource schema.GroupResource
	Object   runtime.Object
}

// write is one key and its new value.
type write struct {
	key, value string
	// revision is the one that the key must have; 0 for a key that must not exist.
	revision int64
}

func (r *Registry) write(ctx context.Context, o Object) (write, error) {
	s, err := r.store(o.Resource)
	if err != nil {
		return write{}, err
	}
	if !o.Cluster.Valid() || o.Cluster == logicalcluster.Wildcard {
		return write{}, fmt.Errorf("%q is no logical cluster that holds objects", o.Cluster)
	}
	accessor, err := meta.Accessor(o.Object)
	if err != nil {
		return write{}, err
	}
	w := write{key: s.etcdKey(o.Cluster, accessor.GetNamespace(), accessor.GetName())}
	if version := accessor.GetResourceVersion(); version != "" {
		if w.revision, err = strconv.ParseInt(version, 10, 64); err != nil {
			return write{}, fmt.Errorf("%q has resource version %q: %w", w.key, version, err)
		}
	}
	w.value, err = s.encode(ctx, w.key, o.Cluster, o.Object)
	return w, err
}

// Fill creates those objects that do not exist, in one transaction, waits until the watch
// caches of this server hold them, and then puts owner in the place of the object whose
// resourceVersion it carries: who is told of that finds the objects. It returns a conflict
// if that object is another one by now. Watchers see each write as any other.
//
// No two of the objects may be of one resource: a watch cache holds all of a revision once
// it has been told one event of it, so a list in between would show a half of it.
func (r *Registry) Fill(ctx context.Context, client *clientv3.Client, objects []Object, owner Object) error {
	change, err := r.write(ctx, owner)
	if err != nil {
		return err
	}
	if change.revision == 0 {
		return fmt.Errorf("%q is to be changed, but does not say which version of it", change.key)
	}
	resources := map[schema.GroupResource]bool{}
	creates := make([]write, len(objects))
	for n, o := range objects {
		if creates[n], err = r.write(ctx, o); err != nil {
			return err
		}
		if creates[n].revision != 0 {
			return fmt.Errorf("%q is to be created, but has a version already", creates[n].key)
		}
		if resources[o.Resource] {
			return fmt.Errorf("%q is the second of its resource in one transaction", creates[n].key)
		}
		resources[o.Resource] = true
	}
	for len(creates) > 0 {
		revision, missing, err := create(ctx, client, change, creates)
		if err != nil {
			return err
		}
		if missing == nil {
			if err := r.waitCached(ctx, objects, creates, revision); err != nil {
				return err
			}
		}
		creates = missing
	}
	resp, err := client.Txn(ctx).If(change.condition()).Then(clientv3.OpPut(change.key, change.value)).Commit()
	if err != nil {
		return fmt.Errorf("cannot write %q: %w", change.key, err)
	}
	if !resp.Succeeded {
		return apierrors.NewConflict(schema.GroupResource{}, change.key, errChanged)
	}
	return nil
}

var errChanged = errors.New("it has been written meanwhile")

// condition is that the key has the revision.
func (w write) condition() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(w.key), "=", w.revision)
}

// create is one attempt, made provided that owner has not changed. If some of creates
// exist, it writes nothing and returns the others; else it returns the revision.
func create(ctx context.Context, client *clientv3.Client, owner write, creates []write) (revision int64, missing []write, err error) {
	conditions, gets := []clientv3.Cmp{owner.condition()}, []clientv3.Op{clientv3.OpGet(owner.key, clientv3.WithKeysOnly())}
	var puts []clientv3.Op
	for _, w := range creates {
		conditions = append(conditions, w.condition())
		gets = append(gets, clientv3.OpGet(w.key, clientv3.WithKeysOnly()))
		puts = append(puts, clientv3.OpPut(w.key, w.value))
	}
	resp, err := client.Txn(ctx).If(conditions...).Then(puts...).Else(gets...).Commit()
	if err != nil {
		return 0, nil, fmt.Errorf("cannot write %q: %w", creates[0].key, err)
	}
	if resp.Succeeded {
		return resp.Header.Revision, nil, nil
	}
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) == 0 || kvs[0].ModRevision != owner.revision {
		return 0, nil, apierrors.NewConflict(schema.GroupResource{}, owner.key, errChanged)
	}
	missing = []write{}
	for n, w := range creates {
		if len(resp.Responses[n+1].GetResponseRange().Kvs) == 0 {
			missing = append(missing, w)
		}
	}
	return 0, missing, nil
}

// waitCached waits until the watch caches hold those of objects that were created at
// revision.
func (r *Registry) waitCached(ctx context.Context, objects []Object, created []write, revision int64) error {
	opts := storage.GetOptions{ResourceVersion: strconv.FormatInt(revision, 10), IgnoreNotFound: true}
	for _, o := range objects {
		s, err := r.store(o.Resource)
		if err != nil {
			return err
		}
		accessor, err := meta.Accessor(o.Object)
		if err != nil {
			return err
		}
		key := s.etcdKey(o.Cluster, accessor.GetNamespace(), accessor.GetName())
		if !slices.ContainsFunc(created, func(w write) bool { return w.key == key }) {
			continue
		}
		if err := s.Interface.Get(ctx, s.prefix+key[len(s.etcdPrefix):], opts, s.newFunc()); err != nil {
			return fmt.Errorf("cannot read %q again: %w", key, err)
		}
	}
	return nil
}
