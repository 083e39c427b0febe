package clients

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/gentype"

	corev1alpha1 "github.com/13eedeaf/kcp/pkg/apis/core/v1alpha1"
	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Scheme knows the product's own kinds.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1alpha1.AddToScheme,
		networkingv1alpha1.AddToScheme,
		schedulingv1alpha1.AddToScheme,
		tenancyv1alpha1.AddToScheme,
		workloadv1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}()

var (
	codecs         = serializer.NewCodecFactory(Scheme)
	parameterCodec = runtime.NewParameterCodec(Scheme)
)

// Client reads and writes one kind of the product in one cluster, and in one namespace
// where the kind has them (an empty one stands for all, for list and watch).
type Client[T informer.Object, L runtime.Object] = gentype.ClientWithList[T, L]

func typed[T informer.Object, L runtime.Object](c *Clients, cluster logicalcluster.Name, namespace string, gvr schema.GroupVersionResource, newT func() T, newL func() L) *Client[T, L] {
	return gentype.NewClientWithList(gvr.Resource, c.restClient(c.json, cluster, gvr.GroupVersion()), parameterCodec, namespace, newT, newL)
}

func empty[T any]() *T { return new(T) }

// The resources of the product's own kinds.
var (
	LogicalClustersResource  = corev1alpha1.GroupVersion.WithResource("logicalclusters")
	WorkspacesResource       = tenancyv1alpha1.GroupVersion.WithResource("workspaces")
	WorkspaceTypesResource   = tenancyv1alpha1.GroupVersion.WithResource("workspacetypes")
	SyncTargetsResource      = workloadv1alpha1.GroupVersion.WithResource("synctargets")
	SyncReportsResource      = workloadv1alpha1.GroupVersion.WithResource("syncreports")
	LocationsResource        = schedulingv1alpha1.GroupVersion.WithResource("locations")
	PlacementsResource       = schedulingv1alpha1.GroupVersion.WithResource("placements")
	AssignmentsResource      = schedulingv1alpha1.GroupVersion.WithResource("assignments")
	GatewayReportsResource   = networkingv1alpha1.GroupVersion.WithResource("gatewayreports")
	GatewayInstancesResource = networkingv1alpha1.GroupVersion.WithResource("gatewayinstances")
	HostClaimsResource       = networkingv1alpha1.GroupVersion.WithResource("hostclaims")
)

// LogicalClusters returns a client for LogicalClusters in cluster.
func (c *Clients) LogicalClusters(cluster logicalcluster.Name) *Client[*corev1alpha1.LogicalCluster, *corev1alpha1.LogicalClusterList] {
	return typed(c, cluster, "", LogicalClustersResource, empty[corev1alpha1.LogicalCluster], empty[corev1alpha1.LogicalClusterList])
}

// Workspaces returns a client for Workspaces in cluster.
func (c *Clients) Workspaces(cluster logicalcluster.Name) *Client[*tenancyv1alpha1.Workspace, *tenancyv1alpha1.WorkspaceList] {
	return typed(c, cluster, "", WorkspacesResource, empty[tenancyv1alpha1.Workspace], empty[tenancyv1alpha1.WorkspaceList])
}

// WorkspaceTypes returns a client for WorkspaceTypes in cluster.
func (c *Clients) WorkspaceTypes(cluster logicalcluster.Name) *Client[*tenancyv1alpha1.WorkspaceType, *tenancyv1alpha1.WorkspaceTypeList] {
	return typed(c, cluster, "", WorkspaceTypesResource, empty[tenancyv1alpha1.WorkspaceType], empty[tenancyv1alpha1.WorkspaceTypeList])
}

// SyncTargets returns a client for SyncTargets in cluster.
func (c *Clients) SyncTargets(cluster logicalcluster.Name) *Client[*workloadv1alpha1.SyncTarget, *workloadv1alpha1.SyncTargetList] {
	return typed(c, cluster, "", SyncTargetsResource, empty[workloadv1alpha1.SyncTarget], empty[workloadv1alpha1.SyncTargetList])
}

// SyncReports returns a client for SyncReports in a namespace of cluster.
func (c *Clients) SyncReports(cluster logicalcluster.Name, namespace string) *Client[*workloadv1alpha1.SyncReport, *workloadv1alpha1.SyncReportList] {
	return typed(c, cluster, namespace, SyncReportsResource, empty[workloadv1alpha1.SyncReport], empty[workloadv1alpha1.SyncReportList])
}

// Locations returns a client for Locations in cluster.
func (c *Clients) Locations(cluster logicalcluster.Name) *Client[*schedulingv1alpha1.Location, *schedulingv1alpha1.LocationList] {
	return typed(c, cluster, "", LocationsResource, empty[schedulingv1alpha1.Location], empty[schedulingv1alpha1.LocationList])
}

// Placements returns a client for Placements in cluster.
func (c *Clients) Placements(cluster logicalcluster.Name) *Client[*schedulingv1alpha1.Placement, *schedulingv1alpha1.PlacementList] {
	return typed(c, cluster, "", PlacementsResource, empty[schedulingv1alpha1.Placement], empty[schedulingv1alpha1.PlacementList])
}

// Assignments returns a client for Assignments in a namespace of cluster.
func (c *Clients) Assignments(cluster logicalcluster.Name, namespace string) *Client[*schedulingv1alpha1.Assignment, *schedulingv1alpha1.AssignmentList] {
	return typed(c, cluster, namespace, AssignmentsResource, empty[schedulingv1alpha1.Assignment], empty[schedulingv1alpha1.AssignmentList])
}

// GatewayReports returns a client for GatewayReports in a namespace of cluster.
func (c *Clients) GatewayReports(cluster logicalcluster.Name, namespace string) *Client[*networkingv1alpha1.GatewayReport, *networkingv1alpha1.GatewayReportList] {
	return typed(c, cluster, namespace, GatewayReportsResource, empty[networkingv1alpha1.GatewayReport], empty[networkingv1alpha1.GatewayReportList])
}

// GatewayInstances returns a client for GatewayInstances in cluster (they stand in
// root).
func (c *Clients) GatewayInstances(cluster logicalcluster.Name) *Client[*networkingv1alpha1.GatewayInstance, *networkingv1alpha1.GatewayInstanceList] {
	return typed(c, cluster, "", GatewayInstancesResource, empty[networkingv1alpha1.GatewayInstance], empty[networkingv1alpha1.GatewayInstanceList])
}

// HostClaims returns a client for HostClaims in a namespace of cluster.
func (c *Clients) HostClaims(cluster logicalcluster.Name, namespace string) *Client[*networkingv1alpha1.HostClaim, *networkingv1alpha1.HostClaimList] {
	return typed(c, cluster, namespace, HostClaimsResource, empty[networkingv1alpha1.HostClaim], empty[networkingv1alpha1.HostClaimList])
}
