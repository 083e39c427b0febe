package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
)

// listParallel is how many resources of one cluster are listed at once.
const listParallel = 8

// object is one object in a cluster that is being deleted.
type object struct {
	gvr             schema.GroupVersionResource
	namespace, name string
	uid             types.UID
	deleting        bool
	finalizers      string
}

func (o object) isWorkspace() bool { return o.gvr == clients.WorkspacesResource }

func (o object) String() string {
	name := o.name
	if o.namespace != "" {
		name = o.namespace + "/" + o.name
	}
	return fmt.Sprintf("%s %q", o.gvr.GroupResource(), name)
}

var (
	namespacesResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

	// ignored resources have no say in the deletion of a cluster: namespaces have their
	// own step, the LogicalCluster goes with the rest, and events are not waited for.
	ignored = sets.New(
		namespacesResource.GroupResource(),
		clients.LogicalClustersResource.GroupResource(),
		schema.GroupResource{Resource: "events"},
		schema.GroupResource{Group: "events.k8s.io", Resource: "events"},
	)
)

// content reads and deletes what is in logical clusters.
type content struct {
	clients  *clients.Clients
	occupied func(ctx context.Context, cluster logicalcluster.Name) ([]schema.GroupResource, error)

	// versions remembers in which version a resource is served, for occupied ones; a
	// resource that is not in it is looked up in the cluster.
	mu       sync.Mutex
	versions map[schema.GroupResource]schema.GroupVersionResource
}

func newContent(c *clients.Clients, occupied func(ctx context.Context, cluster logicalcluster.Name) ([]schema.GroupResource, error)) *content {
	return &content{clients: c, occupied: occupied, versions: map[schema.GroupResource]schema.GroupVersionResource{}}
}

// listFinalized returns the objects of cluster that have finalizers, child workspaces
// among them.
func (c *content) listFinalized(ctx context.Context, cluster logicalcluster.Name) ([]object, error) {
	resources, opts, err := c.resources(ctx, cluster)
	if err != nil {
		return nil, err
	}
	// At the same time, since a consistent list of a quiet resource waits for etcd rather
	// than working.
	lists, errs := make([][]object, len(resources)), make([]error, len(resources))
	workqueue.ParallelizeUntil(ctx, listParallel, len(resources), func(n int) {
		lists[n], errs[n] = c.list(ctx, cluster, resources[n], opts)
	})
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return nil, err
	}
	return filter(slices.Concat(lists...), func(o object) bool { return o.finalizers != "" }), nil
}

func (c *content) listNamespaces(ctx context.Context, cluster logicalcluster.Name) ([]object, error) {
	return c.list(ctx, cluster, namespacesResource, metav1.ListOptions{ResourceVersion: "0"})
}

// resources returns what has to be listed, and how.
func (c *content) resources(ctx context.Context, cluster logicalcluster.Name) ([]schema.GroupVersionResource, metav1.ListOptions, error) {
	if c.occupied == nil {
		served, err := c.discover(cluster)
		return served, metav1.ListOptions{ResourceVersion: "0"}, err
	}
	occupied, err := c.occupied(ctx, cluster)
	if err != nil {
		return nil, metav1.ListOptions{}, err
	}
	out := make([]schema.GroupVersionResource, 0, len(occupied))
	for _, gr := range occupied {
		if ignored.Has(gr) {
			continue
		}
		gvr, err := c.version(cluster, gr)
		if err != nil {
			return nil, metav1.ListOptions{}, err
		}
		out = append(out, gvr)
	}
	return out, metav1.ListOptions{}, nil
}

func (c *content) version(cluster logicalcluster.Name, gr schema.GroupResource) (schema.GroupVersionResource, error) {
	if gvr, ok := c.known(gr); ok {
		return gvr, nil
	}
	if _, err := c.discover(cluster); err != nil {
		return schema.GroupVersionResource{}, err
	}
	if gvr, ok := c.known(gr); ok {
		return gvr, nil
	}
	return schema.GroupVersionResource{}, fmt.Errorf("logical cluster %q has objects of %s, which it does not serve", cluster, gr)
}

func (c *content) known(gr schema.GroupResource) (schema.GroupVersionResource, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gvr, ok := c.versions[gr]
	return gvr, ok
}

// discover returns the resources of cluster that can be listed and deleted. An
// incomplete answer is an error: what is not listed would not be waited for.
func (c *content) discover(cluster logicalcluster.Name) ([]schema.GroupVersionResource, error) {
	client, err := c.clients.Discovery(cluster)
	if err != nil {
		return nil, err
	}
	lists, err := discovery.ServerPreferredResources(client)
	if err != nil {
		return nil, fmt.Errorf("cannot discover what logical cluster %q serves: %w", cluster, err)
	}
	served, err := discovery.GroupVersionResources(discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists))
	if err != nil {
		return nil, err
	}
	if len(served) == 0 {
		return nil, errors.New("discovery answered with no resources")
	}
	out := make([]schema.GroupVersionResource, 0, len(served))
	c.mu.Lock()
	defer c.mu.Unlock()
	for gvr := range served {
		if strings.Contains(gvr.Resource, "/") || ignored.Has(gvr.GroupResource()) {
			continue
		}
		out = append(out, gvr)
		c.versions[gvr.GroupResource()] = gvr
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}

func (c *content) list(ctx context.Context, cluster logicalcluster.Name, gvr schema.GroupVersionResource, opts metav1.ListOptions) ([]object, error) {
	client, err := c.clients.Metadata(cluster)
	if err != nil {
		return nil, err
	}
	list, err := client.Resource(gvr).List(ctx, opts)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot list %s: %w", gvr.GroupResource(), err)
	}
	out := make([]object, len(list.Items))
	for n, item := range list.Items {
		out[n] = object{
			gvr:        gvr,
			namespace:  item.Namespace,
			name:       item.Name,
			uid:        item.UID,
			deleting:   item.DeletionTimestamp != nil,
			finalizers: strings.Join(item.Finalizers, ", "),
		}
	}
	return out, nil
}

func (c *content) delete(ctx context.Context, cluster logicalcluster.Name, obj object) error {
	client, err := c.clients.Metadata(cluster)
	if err != nil {
		return err
	}
	return client.Resource(obj.gvr).Namespace(obj.namespace).Delete(ctx, obj.name, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
		Preconditions:     metav1.NewUIDPreconditions(string(obj.uid)),
	})
}
