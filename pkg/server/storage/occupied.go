package storage

import (
	"context"
	"fmt"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Occupied returns the resources that have objects in a cluster, by a consistent read
// that fetches counts only.
func (r *Registry) Occupied(ctx context.Context, client *clientv3.Client, cluster logicalcluster.Name) ([]schema.GroupResource, error) {
	if !cluster.Valid() {
		return nil, fmt.Errorf("%q is no logical cluster that holds objects", cluster)
	}
	r.mu.Lock()
	resources := maps.Clone(r.prefixes)
	r.mu.Unlock()
	var out []schema.GroupResource
	for prefixes := range slices.Chunk(slices.Sorted(maps.Keys(resources)), 100) {
		ops := make([]clientv3.Op, len(prefixes))
		for n, prefix := range prefixes {
			ops[n] = clientv3.OpGet(prefix+"/"+string(cluster)+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		}
		resp, err := client.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return nil, fmt.Errorf("cannot count the content of logical cluster %q: %w", cluster, err)
		}
		for n, response := range resp.Responses {
			if response.GetResponseRange().Count > 0 {
				out = append(out, resources[prefixes[n]])
			}
		}
	}
	return out, nil
}
