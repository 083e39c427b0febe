package storage

import (
	"context"
	"fmt"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

const (
	// maxOps is how many operations one transaction has at most; etcd allows 128.
	maxOps = 120
	// firstPage is how many objects of each resource are read at first, and in one
	// transaction; nextPage how many of a resource with more of them.
	firstPage, nextPage = 8, 500
)

// Content is what a cluster held at a revision.
type Content struct {
	// Finalized are the objects that have finalizers.
	Finalized []Finalized
	// Unread are the resources that have objects, but no storage yet in this run of the
	// server: a request for one makes it.
	Unread []schema.GroupResource

	cluster logicalcluster.Name
	// revision is that of etcd; unseen are the prefixes of resources that were skipped,
	// used those that had objects.
	revision     int64
	unseen, used []string
}

// Finalized is an object that somebody has to let go of.
type Finalized struct {
	Resource schema.GroupResource
	Object   metav1.Object
}

// Content reads what a cluster holds, from etcd, but for the resources that skip names.
// A small cluster costs one read.
func (r *Registry) Content(ctx context.Context, client *clientv3.Client, cluster logicalcluster.Name, skip func(schema.GroupResource) bool) (*Content, error) {
	if !cluster.Valid() || cluster == logicalcluster.Wildcard {
		return nil, fmt.Errorf("%q is no logical cluster that holds objects", cluster)
	}
	r.mu.Lock()
	resources, stores := maps.Clone(r.prefixes), maps.Clone(r.stores)
	r.mu.Unlock()

	content := &Content{cluster: cluster}
	maps.DeleteFunc(resources, func(prefix string, gr schema.GroupResource) bool {
		if skip(gr) {
			content.unseen = append(content.unseen, prefix)
		}
		return skip(gr)
	})
	for prefixes := range slices.Chunk(slices.Sorted(maps.Keys(resources)), maxOps) {
		ops := make([]clientv3.Op, len(prefixes))
		for n, prefix := range prefixes {
			opts := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(firstPage)}
			if stores[resources[prefix]] == nil {
				opts = append(opts, clientv3.WithKeysOnly())
			}
			if content.revision != 0 {
				opts = append(opts, clientv3.WithRev(content.revision))
			}
			ops[n] = clientv3.OpGet(clusterPrefix(prefix, cluster), opts...)
		}
		resp, err := client.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return nil, fmt.Errorf("cannot read the content of logical cluster %q: %w", cluster, err)
		}
		if content.revision == 0 {
			content.revision = resp.Header.Revision
		}
		for n, prefix := range prefixes {
			gr := resources[prefix]
			found := (*clientv3.GetResponse)(resp.Responses[n].GetResponseRange())
			if len(found.Kvs) == 0 {
				continue
			}
			content.used = append(content.used, prefix)
			s := stores[gr]
			if s == nil {
				content.Unread = append(content.Unread, gr)
				continue
			}
			if err := content.read(ctx, client, s, gr, clusterPrefix(prefix, cluster), found); err != nil {
				return nil, err
			}
		}
	}
	return content, nil
}

// clusterPrefix is what keys of one resource in one cluster start with.
func clusterPrefix(prefix string, cluster logicalcluster.Name) string {
	return prefix + "/" + string(cluster) + "/"
}

// read takes in the objects of a resource: a page below prefix, and those after it.
func (c *Content) read(ctx context.Context, client *clientv3.Client, s *clusterStorage, gr schema.GroupResource, prefix string, page *clientv3.GetResponse) error {
	for {
		for _, kv := range page.Kvs {
			obj, err := s.decode(ctx, string(kv.Key), kv.Value)
			if err != nil {
				return err
			}
			accessor, err := meta.Accessor(obj)
			if err != nil {
				return fmt.Errorf("%q is no object: %w", kv.Key, err)
			}
			if len(accessor.GetFinalizers()) > 0 {
				c.Finalized = append(c.Finalized, Finalized{Resource: gr, Object: accessor})
			}
		}
		if !page.More {
			return nil
		}
		next := string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		opts := []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(nextPage), clientv3.WithRev(c.revision)}
		var err error
		if page, err = client.Get(ctx, next, opts...); err != nil {
			return fmt.Errorf("cannot read %q: %w", prefix, err)
		}
	}
}
