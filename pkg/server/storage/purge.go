package storage

import (
	"context"
	"fmt"
	"sort"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// DeleteCluster removes every object of a cluster, finalizers or not. It is the last
// step of a workspace's deletion, when whatever honours finalizers has run. It is safe to
// repeat.
func (r *Registry) DeleteCluster(ctx context.Context, client *clientv3.Client, cluster logicalcluster.Name) error {
	if !cluster.Valid() || cluster == logicalcluster.Root || cluster == logicalcluster.System {
		return fmt.Errorf("refusing to delete the content of logical cluster %q", cluster)
	}
	r.mu.Lock()
	prefixes := make([]string, 0, len(r.prefixes))
	for prefix := range r.prefixes {
		prefixes = append(prefixes, prefix)
	}
	r.mu.Unlock()
	sort.Strings(prefixes)
	// etcd limits the operations of one transaction (128 by default).
	const batch = 100
	for len(prefixes) > 0 {
		n := min(batch, len(prefixes))
		ops := make([]clientv3.Op, 0, n)
		for _, prefix := range prefixes[:n] {
			ops = append(ops, clientv3.OpDelete(prefix+"/"+string(cluster)+"/", clientv3.WithPrefix()))
		}
		if _, err := client.Txn(ctx).Then(ops...).Commit(); err != nil {
			return fmt.Errorf("cannot delete the content of logical cluster %q: %w", cluster, err)
		}
		prefixes = prefixes[n:]
	}
	return nil
}
