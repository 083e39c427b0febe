// Package informers holds the shared informers of one server: one per resource, for
// all logical clusters, made when somebody first asks for it.
//
// Everything here reads over the wildcard client, so an informer costs one watch and
// one copy of the objects, however many clusters there are and however many components
// read it. Ask for informers and add handlers before Start where possible; later ones
// are started as they are asked for.
//
// Native kinds other than namespaces are held as unstructured objects: the virtual
// workspaces serve them in that form, and a typed copy beside it would double them.
package informers

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/13eedeaf/kcp/pkg/apis/core/v1alpha1"
	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
)

// Set makes and keeps the informers. It is safe for concurrent use.
type Set struct {
	clients *clients.Clients

	mu      sync.Mutex
	byKey   map[key]running
	ctx     context.Context // set by Start
	workers sync.WaitGroup
}

// key tells a typed informer of a resource from the unstructured one.
type key struct {
	gvr          schema.GroupVersionResource
	unstructured bool
}

type running interface {
	Run(ctx context.Context)
	WaitForSync(ctx context.Context) bool
}

// NewSet returns a set that reads with c.
func NewSet(c *clients.Clients) *Set {
	return &Set{clients: c, byKey: map[key]running{}}
}

// Start runs the informers asked for so far, and from now on each as it is asked for,
// until ctx ends. It does not block.
func (s *Set) Start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx != nil {
		return
	}
	s.ctx = ctx
	for _, i := range s.byKey {
		s.startLocked(i)
	}
}

func (s *Set) startLocked(i running) {
	ctx := s.ctx
	s.workers.Go(func() { i.Run(ctx) })
}

// Wait blocks until every informer has stopped; call it after the context of Start has
// ended.
func (s *Set) Wait() { s.workers.Wait() }

// WaitForSync blocks until the informers asked for so far hold the server's state, or
// until ctx ends; it reports which.
func (s *Set) WaitForSync(ctx context.Context) bool {
	s.mu.Lock()
	all := make([]running, 0, len(s.byKey))
	for _, i := range s.byKey {
		all = append(all, i)
	}
	s.mu.Unlock()
	for _, i := range all {
		if !i.WaitForSync(ctx) {
			return false
		}
	}
	return true
}

// get returns the informer under k, made with source if it is the first to be asked
// for.
func get[T informer.Object](s *Set, k key, source func() informer.Source) *informer.Informer[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.byKey[k]; ok {
		return i.(*informer.Informer[T])
	}
	i := informer.New[T](k.gvr.Resource, source(), nil)
	s.byKey[k] = i
	if s.ctx != nil {
		s.startLocked(i)
	}
	return i
}

// lister is the reading side of a typed client.
type lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

func reflect[L runtime.Object](c lister[L]) informer.Source {
	return informer.Reflect(
		func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) { return c.List(ctx, opts) },
		c.Watch,
	)
}

func typed[T informer.Object, L runtime.Object](s *Set, gvr schema.GroupVersionResource, client func() lister[L]) *informer.Informer[T] {
	return get[T](s, key{gvr: gvr}, func() informer.Source { return reflect(client()) })
}

const all = logicalcluster.Wildcard

// Unstructured returns the informer for a resource of any kind.
func (s *Set) Unstructured(gvr schema.GroupVersionResource) *informer.Informer[*unstructured.Unstructured] {
	return get[*unstructured.Unstructured](s, key{gvr: gvr, unstructured: true}, func() informer.Source {
		return reflect[*unstructured.UnstructuredList](s.clients.Dynamic(all).Resource(gvr))
	})
}

// Namespaces returns the informer for namespaces.
func (s *Set) Namespaces() *informer.Informer[*corev1.Namespace] {
	return typed[*corev1.Namespace](s, corev1.SchemeGroupVersion.WithResource("namespaces"), func() lister[*corev1.NamespaceList] {
		return s.clients.Core(all).Namespaces()
	})
}

// LogicalClusters returns the informer for LogicalClusters.
func (s *Set) LogicalClusters() *informer.Informer[*corev1alpha1.LogicalCluster] {
	return typed[*corev1alpha1.LogicalCluster](s, clients.LogicalClustersResource, func() lister[*corev1alpha1.LogicalClusterList] {
		return s.clients.LogicalClusters(all)
	})
}

// Workspaces returns the informer for Workspaces.
func (s *Set) Workspaces() *informer.Informer[*tenancyv1alpha1.Workspace] {
	return typed[*tenancyv1alpha1.Workspace](s, clients.WorkspacesResource, func() lister[*tenancyv1alpha1.WorkspaceList] {
		return s.clients.Workspaces(all)
	})
}

// WorkspaceTypes returns the informer for WorkspaceTypes.
func (s *Set) WorkspaceTypes() *informer.Informer[*tenancyv1alpha1.WorkspaceType] {
	return typed[*tenancyv1alpha1.WorkspaceType](s, clients.WorkspaceTypesResource, func() lister[*tenancyv1alpha1.WorkspaceTypeList] {
		return s.clients.WorkspaceTypes(all)
	})
}

// SyncTargets returns the informer for SyncTargets.
func (s *Set) SyncTargets() *informer.Informer[*workloadv1alpha1.SyncTarget] {
	return typed[*workloadv1alpha1.SyncTarget](s, clients.SyncTargetsResource, func() lister[*workloadv1alpha1.SyncTargetList] {
		return s.clients.SyncTargets(all)
	})
}

// SyncReports returns the informer for SyncReports.
func (s *Set) SyncReports() *informer.Informer[*workloadv1alpha1.SyncReport] {
	return typed[*workloadv1alpha1.SyncReport](s, clients.SyncReportsResource, func() lister[*workloadv1alpha1.SyncReportList] {
		return s.clients.SyncReports(all, "")
	})
}

// Locations returns the informer for Locations.
func (s *Set) Locations() *informer.Informer[*schedulingv1alpha1.Location] {
	return typed[*schedulingv1alpha1.Location](s, clients.LocationsResource, func() lister[*schedulingv1alpha1.LocationList] {
		return s.clients.Locations(all)
	})
}

// Placements returns the informer for Placements.
func (s *Set) Placements() *informer.Informer[*schedulingv1alpha1.Placement] {
	return typed[*schedulingv1alpha1.Placement](s, clients.PlacementsResource, func() lister[*schedulingv1alpha1.PlacementList] {
		return s.clients.Placements(all)
	})
}

// Assignments returns the informer for Assignments.
func (s *Set) Assignments() *informer.Informer[*schedulingv1alpha1.Assignment] {
	return typed[*schedulingv1alpha1.Assignment](s, clients.AssignmentsResource, func() lister[*schedulingv1alpha1.AssignmentList] {
		return s.clients.Assignments(all, "")
	})
}

// GatewayReports returns the informer for GatewayReports.
func (s *Set) GatewayReports() *informer.Informer[*networkingv1alpha1.GatewayReport] {
	return typed[*networkingv1alpha1.GatewayReport](s, clients.GatewayReportsResource, func() lister[*networkingv1alpha1.GatewayReportList] {
		return s.clients.GatewayReports(all, "")
	})
}

// GatewayInstances returns the informer for GatewayInstances.
func (s *Set) GatewayInstances() *informer.Informer[*networkingv1alpha1.GatewayInstance] {
	return typed[*networkingv1alpha1.GatewayInstance](s, clients.GatewayInstancesResource, func() lister[*networkingv1alpha1.GatewayInstanceList] {
		return s.clients.GatewayInstances(all)
	})
}

// HostClaims returns the informer for HostClaims.
func (s *Set) HostClaims() *informer.Informer[*networkingv1alpha1.HostClaim] {
	return typed[*networkingv1alpha1.HostClaim](s, clients.HostClaimsResource, func() lister[*networkingv1alpha1.HostClaimList] {
		return s.clients.HostClaims(all, "")
	})
}
