// Package workspace turns Workspace objects into usable logical clusters, and back into
// nothing.
//
// # Creation
//
// A new logical cluster gets a default namespace with its service account, a
// ClusterRoleBinding for its creator, a default Placement if its type says so, and its
// LogicalCluster object, all in one transaction: either nothing is there yet, or
// everything. What exists already is left alone. Then the Workspace becomes Ready, and
// nothing here is looked after again, so that a tenant can take away what it was given.
//
// # Deletion
//
// Child workspaces go first. Then, while any object in the cluster has a finalizer, the
// cluster's namespaces and such objects are deleted the ordinary way and waited for. What
// is left has none, so removing the cluster's keys from storage is the same as deleting
// every object. It costs one transaction, in which the Workspace goes too, unless somebody
// else has a finalizer on it; one transaction before it has marked the Workspace.
package workspace

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	Fill      Fill
	Content   ReadContent
}

// Fill creates the objects of a new logical cluster that do not exist, with what an API
// server puts into new objects, in one transaction, and once they can be found writes the
// status of its Workspace. It returns a conflict if the Workspace has been written
// meanwhile.
type Fill func(ctx context.Context, cluster logicalcluster.Name, objects []informer.Object, ws *tenancyv1alpha1.Workspace) error

// ReadContent reads what a logical cluster holds, consistently, but for the resources
// that skip names.
type ReadContent func(ctx context.Context, cluster logicalcluster.Name, skip func(schema.GroupResource) bool) (Content, error)

// Content is what a logical cluster holds at one moment.
type Content struct {
	// Finalized are the objects that have finalizers.
	Finalized []Finalized
	// Unread are resources that have objects which cannot be read this way, but have to
	// be listed.
	Unread []schema.GroupResource
	// Delete removes all of it from storage, and the Workspace too unless it is nil. It
	// returns a conflict, having done nothing, if something has been created since
	// that moment, or the Workspace is another than ws by now.
	Delete func(ctx context.Context, ws *tenancyv1alpha1.Workspace) error
}

// Finalized is an object that somebody has to let go of.
type Finalized struct {
	Resource schema.GroupResource
	Object   metav1.Object
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
		if !deps.Index.HasChildren(event.Key.Cluster) {
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
