package workspace

import (
	"context"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
)

// object is one object in a cluster that is being deleted.
type object struct {
	gvr             schema.GroupVersionResource
	namespace, name string
	uid             types.UID
	deleting        bool
	finalizers      string
}

func newObject(gvr schema.GroupVersionResource, o metav1.Object) object {
	return object{
		gvr:        gvr,
		namespace:  o.GetNamespace(),
		name:       o.GetName(),
		uid:        o.GetUID(),
		deleting:   o.GetDeletionTimestamp() != nil,
		finalizers: strings.Join(o.GetFinalizers(), ", "),
	}
}

func (o object) isWorkspace() bool  { return o.gvr == clients.WorkspacesResource }
func (o object) isSyncTarget() bool { return o.gvr == clients.SyncTargetsResource }

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
	clients *clients.Clients
	read    ReadContent

	// versions remembers in which version a resource is served; a resource that is not in
	// it is looked up in the cluster.
	mu       sync.Mutex
	versions map[schema.GroupResource]schema.GroupVersionResource
}

func newContent(c *clients.Clients, read ReadContent) *content {
	return &content{clients: c, read: read, versions: map[schema.GroupResource]schema.GroupVersionResource{}}
}

// listFinalized returns the objects of cluster that have finalizers, child workspaces
// among them, and how to remove everything if there are none.
func (c *content) listFinalized(ctx context.Context, cluster logicalcluster.Name) ([]object, deleteFunc, error) {
	found, err := c.read(ctx, cluster, ignored.Has)
	if err != nil {
		return nil, nil, err
	}
	finalized := make([]object, len(found.Finalized))
	for n, f := range found.Finalized {
		gvr, err := c.version(cluster, f.Resource)
		if err != nil {
			return nil, nil, err
		}
		finalized[n] = newObject(gvr, f.Object)
	}
	for _, gr := range found.Unread {
		gvr, err := c.version(cluster, gr)
		if err != nil {
			return nil, nil, err
		}
		objs, err := c.list(ctx, cluster, gvr, metav1.ListOptions{})
		if err != nil {
			return nil, nil, err
		}
		finalized = append(finalized, filter(objs, func(o object) bool { return o.finalizers != "" })...)
	}
	return finalized, found.Delete, nil
}

func (c *content) listNamespaces(ctx context.Context, cluster logicalcluster.Name) ([]object, error) {
	return c.list(ctx, cluster, namespacesResource, metav1.ListOptions{ResourceVersion: "0"})
}

func (c *content) version(cluster logicalcluster.Name, gr schema.GroupResource) (schema.GroupVersionResource, error) {
	if gvr, ok := c.known(gr); ok {
		return gvr, nil
	}
	if err := c.discover(cluster); err != nil {
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

// discover remembers the resources of cluster that can be listed and deleted. An
// incomplete answer is an error: what is not listed would not be waited for.
func (c *content) discover(cluster logicalcluster.Name) error {
	client, err := c.clients.Discovery(cluster)
	if err != nil {
		return err
	}
	lists, err := discovery.ServerPreferredResources(client)
	if err != nil {
		return fmt.Errorf("cannot discover what logical cluster %q serves: %w", cluster, err)
	}
	served, err := discovery.GroupVersionResources(discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for gvr := range served {
		if !strings.Contains(gvr.Resource, "/") {
			c.versions[gvr.GroupResource()] = gvr
		}
	}
	return nil
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
	for n := range list.Items {
		out[n] = newObject(gvr, &list.Items[n])
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
