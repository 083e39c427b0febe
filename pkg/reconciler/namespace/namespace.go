// Package namespace deletes namespaces with all that is in them, and gives each its
// default service account, in all logical clusters.
//
// How the content of one namespace is deleted is upstream's: the deleter of
// kube-controller-manager, here with clients for the namespace's cluster.
package namespace

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubernetes/pkg/controller/namespace/deletion"

	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/reconciler/informers"
	"github.com/13eedeaf/kcp/pkg/workspaces"
)

const (
	workers = 8
	// defaultServiceAccount is the account of pods that name none.
	defaultServiceAccount = "default"
	// maxWait bounds the deleter's estimate of how long content takes to go; finalizers
	// are usually gone much sooner than it thinks.
	maxWait = 2 * time.Second
	// withAccount is when the default namespace of a workspace is looked at: it comes with
	// its account in one transaction, but the two informers are told one after the other.
	withAccount = time.Second
)

// Deps is what the controller works with.
type Deps struct {
	Clients   *clients.Clients
	Informers *informers.Set
	Index     *workspaces.Index
}

// Controller reconciles namespaces of all clusters.
type Controller struct {
	loop            *reconciler.Controller[logicalcluster.Key]
	namespaces      *informer.Informer[*corev1.Namespace]
	serviceAccounts *informer.Informer[*unstructured.Unstructured]

	// deleting reports whether a whole cluster is going.
	deleting             func(cluster logicalcluster.Name) bool
	createServiceAccount func(ctx context.Context, cluster logicalcluster.Name, namespace string) error
	deleteContent        func(ctx context.Context, cluster logicalcluster.Name, namespace string) error
}

// New returns the controller; Run starts it.
func New(deps Deps) *Controller {
	c := &Controller{
		namespaces:      deps.Informers.Namespaces(),
		serviceAccounts: deps.Informers.Unstructured(corev1.SchemeGroupVersion.WithResource("serviceaccounts")),
		deleting:        deps.Index.Deleting,
		createServiceAccount: func(ctx context.Context, cluster logicalcluster.Name, namespace string) error {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: defaultServiceAccount}}
			_, err := deps.Clients.Core(cluster).ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
			return err
		},
		deleteContent: func(ctx context.Context, cluster logicalcluster.Name, namespace string) error {
			return deleteContent(ctx, deps.Clients, cluster, namespace)
		},
	}
	c.loop = reconciler.New("namespace", reconciler.Func[logicalcluster.Key](c.reconcile), reconciler.WithWorkers(workers))
	c.namespaces.AddHandler(func(event informer.Event[*corev1.Namespace]) {
		switch {
		case event.Deleted:
		case event.Added && event.Key.Name == metav1.NamespaceDefault && event.Key.Cluster != logicalcluster.Root:
			c.loop.EnqueueAfter(event.Key, withAccount)
		default:
			c.loop.Enqueue(event.Key)
		}
	})
	c.serviceAccounts.AddHandler(func(event informer.Event[*unstructured.Unstructured]) {
		if event.Deleted && event.Key.Name == defaultServiceAccount {
			c.loop.Enqueue(logicalcluster.Key{Cluster: event.Key.Cluster, Name: event.Key.Namespace})
		}
	})
	return c
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	if c.namespaces.WaitForSync(ctx) && c.serviceAccounts.WaitForSync(ctx) {
		c.loop.Run(ctx)
	}
}

func (c *Controller) reconcile(ctx context.Context, key logicalcluster.Key) (reconciler.Result, error) {
	namespace, ok := c.namespaces.Get(key.Cluster, "", key.Name)
	if !ok {
		return reconciler.Result{}, nil
	}
	if namespace.DeletionTimestamp != nil {
		return c.delete(ctx, key)
	}
	if c.deleting(key.Cluster) {
		// An account made now could come after the cluster's keys are removed, and stay.
		return reconciler.Result{}, nil
	}
	if _, ok := c.serviceAccounts.Get(key.Cluster, key.Name, defaultServiceAccount); ok {
		return reconciler.Result{}, nil
	}
	err := c.createServiceAccount(ctx, key.Cluster, key.Name)
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return reconciler.Result{}, nil
	}
	if err != nil {
		return reconciler.Result{}, fmt.Errorf("cannot create service account %q: %w", defaultServiceAccount, err)
	}
	return reconciler.Result{}, nil
}

func (c *Controller) delete(ctx context.Context, key logicalcluster.Key) (reconciler.Result, error) {
	err := c.deleteContent(ctx, key.Cluster, key.Name)
	var remaining *deletion.ResourcesRemainingError
	if errors.As(err, &remaining) {
		return reconciler.Result{RequeueAfter: min(maxWait, time.Duration(remaining.Estimate)*time.Second/2+time.Second/10)}, nil
	}
	if err != nil {
		return reconciler.Result{}, fmt.Errorf("cannot delete the content of namespace %q: %w", key.Name, err)
	}
	return reconciler.Result{}, nil
}

// deleteContent deletes what is in a namespace and then finalizes it.
func deleteContent(ctx context.Context, c *clients.Clients, cluster logicalcluster.Name, namespace string) error {
	discoveryClient, err := c.Discovery(cluster)
	if err != nil {
		return err
	}
	// Asked here and not by the deleter, which ends the whole program when the answer is
	// empty.
	resources, err := discoveryClient.ServerPreferredNamespacedResources()
	if err != nil {
		return fmt.Errorf("cannot discover what logical cluster %q serves: %w", cluster, err)
	}
	if len(resources) == 0 {
		return fmt.Errorf("logical cluster %q serves no resources", cluster)
	}
	metadataClient, err := c.Metadata(cluster)
	if err != nil {
		return err
	}
	core := c.Core(cluster)
	deleter := deletion.NewNamespacedResourcesDeleter(ctx, core.Namespaces(), metadataClient, core,
		func() ([]*metav1.APIResourceList, error) { return resources, nil }, corev1.FinalizerKubernetes)
	return deleter.Delete(ctx, namespace)
}
