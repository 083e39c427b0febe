package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Owner is the object that stands for a cluster in another one, at a version.
type Owner struct {
	Cluster  logicalcluster.Name
	Resource schema.GroupResource
	Name     string
	Revision int64
}

var errCame = errors.New("something has come into it meanwhile")

// DeleteCluster removes every object of the cluster that content is of, finalizers or
// not, and with them its owner, if there is one to go: the last step of a workspace's
// deletion, when whatever honours finalizers has run. It is safe to repeat.
//
// It returns a conflict, and removes nothing, if an object has been created in the
// cluster since Content has looked, or the owner been written since its revision.
func (r *Registry) DeleteCluster(ctx context.Context, client *clientv3.Client, content *Content, owner *Owner) error {
	cluster := content.cluster
	if cluster == logicalcluster.Root || cluster == logicalcluster.System {
		return fmt.Errorf("refusing to delete the content of logical cluster %q", cluster)
	}
	r.mu.Lock()
	prefixes := slices.Sorted(maps.Keys(r.prefixes))
	r.mu.Unlock()
	// One transaction, unless there are more resources than one has room for; then the
	// owner goes with the last.
	chunks := slices.Collect(slices.Chunk(prefixes, maxOps))
	for n, chunk := range chunks {
		var (
			conditions []clientv3.Cmp
			deletes    []clientv3.Op
		)
		for _, prefix := range chunk {
			key := clusterPrefix(prefix, cluster)
			if !slices.Contains(content.unseen, prefix) {
				conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(key).WithPrefix(), "<", content.revision+1))
			}
			if slices.Contains(content.unseen, prefix) || slices.Contains(content.used, prefix) {
				deletes = append(deletes, clientv3.OpDelete(key, clientv3.WithPrefix()))
			}
		}
		if n == len(chunks)-1 && owner != nil {
			s, err := r.store(owner.Resource)
			if err != nil {
				return err
			}
			key := s.etcdKey(owner.Cluster, "", owner.Name)
			conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(key), "=", owner.Revision))
			deletes = append(deletes, clientv3.OpDelete(key))
		}
		resp, err := client.Txn(ctx).If(conditions...).Then(deletes...).Commit()
		if err != nil {
			return fmt.Errorf("cannot delete the content of logical cluster %q: %w", cluster, err)
		}
		if !resp.Succeeded {
			return apierrors.NewConflict(schema.GroupResource{Resource: "logicalclusters"}, string(cluster), errCame)
		}
	}
	return nil
}
