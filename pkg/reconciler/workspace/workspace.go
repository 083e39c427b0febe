// Package workspace turns Workspace objects into usable logical clusters, and back into
// nothing.
//
// # Creation
//
// A new logical cluster gets a default namespace, a ClusterRoleBinding for its creator,
// a default Placement if its type says so, and last its LogicalCluster object; then the
// Workspace is Ready. Each is one write, without a read before it: what exists already
// is from an earlier attempt. Once Ready, nothing here is looked after again, so that a
// tenant can take away what it was given.
//
// # Deletion
//
// Child workspaces go first. Then, while any object in the cluster has a finalizer, the
// cluster's namespaces and such objects are deleted the ordinary way and waited for. What
// is left has none, so removing the cluster's keys from storage is the same as deleting
// every object, and costs one transaction. The Workspace's own finalizer goes last.
package workspace

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/reconciler/informers"
	"github.com/13eedeaf/kcp/pkg/workspaces"
)

const (
	workers = 16
	// lookAgain bounds how long a deletion waits for an event that says that content
	// is gone.
	lookAgain = 2 * time.Second
)

// Deps is what the controller works with.
type Deps struct {
	Clients   *clients.Clients
	Informers *informers.Set
	Index     *workspaces.Index
	// DeleteCluster removes every object of a logical cluster from storage.
	DeleteCluster func(ctx context.Context, cluster logicalcluster.Name) error
	// Occupied returns the resources that have objects in a cluster, with a consistent
	// read. It is optional: without it every resource that the cluster serves is listed
	// from the server's cache.
	Occupied func(ctx context.Context, cluster logicalcluster.Name) ([]schema.GroupResource, error)
}

// Controller reconciles Workspaces of all clusters.
type Controller struct {
	loop       *reconciler.Controller[logicalcluster.Key]
	workspaces *informer.Informer[*tenancyv1alpha1.Workspace]
	namespaces *informer.Informer[*corev1.Namespace]
	types      *informer.Informer[*tenancyv1alpha1.WorkspaceType]

	initializer initializer
	deleter     deleter
}

// New returns the controller; Run starts it.
func New(deps Deps) *Controller {
	c := &Controller{
		workspaces: deps.Informers.Workspaces(),
		namespaces: deps.Informers.Namespaces(),
		types:      deps.Informers.WorkspaceTypes(),
	}
	c.loop = reconciler.New("workspace", reconciler.Func[logicalcluster.Key](c.reconcile), reconciler.WithWorkers(workers))
	c.initializer = newInitializer(deps, c.types)
	c.deleter = newDeleter(deps)

	c.workspaces.AddHandler(func(event informer.Event[*tenancyv1alpha1.Workspace]) {
		if !event.Deleted {
			if needsWork(event.New) {
				c.loop.Enqueue(event.Key)
			}
			return
		}
		// A parent waits for the last of its children.
		if len(deps.Index.ListChildren(event.Key.Cluster)) == 0 {
			c.enqueueWaiting(deps.Index, event.Key.Cluster)
		}
	})
	c.namespaces.AddHandler(func(event informer.Event[*corev1.Namespace]) {
		if event.Deleted {
			c.enqueueWaiting(deps.Index, event.Key.Cluster)
		}
	})
	return c
}

// enqueueWaiting wakes the deletion of a cluster in which something has gone, if it has
// said that it waits. One that says so only now looks again by itself, at the event of
// saying it.
func (c *Controller) enqueueWaiting(index *workspaces.Index, cluster logicalcluster.Name) {
	ws, ok := index.Workspace(cluster)
	if ok && ws.DeletionTimestamp != nil && ws.Status.Phase == tenancyv1alpha1.WorkspacePhaseDeleting {
		c.loop.Enqueue(logicalcluster.KeyOf(ws))
	}
}

func needsWork(ws *tenancyv1alpha1.Workspace) bool {
	return ws.DeletionTimestamp != nil || ws.Status.Phase != tenancyv1alpha1.WorkspacePhaseReady
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	if c.workspaces.WaitForSync(ctx) && c.namespaces.WaitForSync(ctx) && c.types.WaitForSync(ctx) {
		c.loop.Run(ctx)
	}
}

func (c *Controller) reconcile(ctx context.Context, key logicalcluster.Key) (result reconciler.Result, err error) {
	ws, ok := c.workspaces.Get(key.Cluster, "", key.Name)
	switch {
	case !ok || !needsWork(ws):
		return reconciler.Result{}, nil
	case ws.DeletionTimestamp != nil:
		result, err = c.deleter.delete(ctx, ws.DeepCopy())
	default:
		err = c.initializer.initialize(ctx, ws.DeepCopy())
	}
	if err == nil {
		return result, nil
	}
	if now, ok := c.workspaces.Get(key.Cluster, "", key.Name); !ok || now.UID != ws.UID {
		// It was gone already, which the informer had not told yet.
		return reconciler.Result{}, nil
	}
	return result, err
}
