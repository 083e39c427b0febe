package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// TargetLabelKey marks an object in a tenant's workspace that a syncer mirrors up
	// (pods, endpoint slices). Its value is the target key. Only the syncer of that
	// target may write such an object, and it is never synced down.
	TargetLabelKey = "workload.kcp.io/target"
	// SyncerFinalizer holds an Assignment until the target has removed its copy.
	SyncerFinalizer = "workload.kcp.io/syncer"
	// SyncTargetFinalizer holds a SyncTarget until its namespaces have moved.
	SyncTargetFinalizer = "workload.kcp.io/synctarget"

	// SyncTargetReady is true while the syncer heartbeats.
	SyncTargetReady = "Ready"
	// SyncTargetSchedulable is false while the target is cordoned.
	SyncTargetSchedulable = "Schedulable"
	// SyncTargetDrained reports a drain: False/Draining, False/Blocked, True/Empty.
	SyncTargetDrained = "Drained"
	// SyncTargetVersionSkew is true when the server refuses the syncer for its version.
	SyncTargetVersionSkew = "VersionSkew"
)

// SyncTarget is a physical cluster as the control plane sees it. It stands in a compute
// workspace; tenants see Locations instead.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Unschedulable",type=boolean,JSONPath=`.spec.unschedulable`
// +kubebuilder:printcolumn:name="Evict After",type=string,JSONPath=`.spec.evictAfter`
// +kubebuilder:printcolumn:name="Namespaces",type=integer,JSONPath=`.status.namespaces`
// +kubebuilder:printcolumn:name="Drain",type=string,JSONPath=`.status.drain.state`
// +kubebuilder:printcolumn:name="Kubernetes",type=string,priority=1,JSONPath=`.status.kubernetesVersion`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SyncTarget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec SyncTargetSpec `json:"spec,omitempty"`
	// +optional
	Status SyncTargetStatus `json:"status,omitempty"`
}

// SyncersNamespace holds the service accounts of the syncers of a workspace's SyncTargets.
const SyncersNamespace = "kcp-syncers"

// SyncTargetSpec is what the cluster's admin states.
type SyncTargetSpec struct {
	// Unschedulable cordons: nothing new is assigned here, nothing leaves.
	// +optional
	Unschedulable bool `json:"unschedulable,omitempty"`
	// EvictAfter drains from that instant on. A past one implies unschedulable.
	// +optional
	EvictAfter *metav1.Time `json:"evictAfter,omitempty"`
	// ForceEvict drains also where nothing can take over, or where state would be lost.
	// +optional
	ForceEvict bool `json:"forceEvict,omitempty"`
	// Endpoint is the physical API server's address and CA, for tools that look up
	// clusters here. The server itself never calls it.
	// +optional
	Endpoint *ClusterEndpoint `json:"endpoint,omitempty"`
	// CredentialsRef points to where credentials for Endpoint are kept; it never holds
	// them.
	// +optional
	CredentialsRef string `json:"credentialsRef,omitempty"`
	// Resources limits what may be synced here. Empty means the default set.
	// +optional
	// +listType=atomic
	Resources []GroupResource `json:"resources,omitempty"`
}

// ClusterEndpoint is where a physical cluster's API can be reached.
type ClusterEndpoint struct {
	// +optional
	Server string `json:"server,omitempty"`
	// CABundle is PEM.
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`
}

// GroupResource names a kind of object, e.g. {group: apps, resource: deployments}.
type GroupResource struct {
	// +optional
	Group string `json:"group,omitempty"`
	// +kubebuilder:validation:MinLength=1
	Resource string `json:"resource"`
}

// SyncTargetStatus is written by the syncer (heartbeat, versions, capacity) and by the
// server (conditions, counts, drain).
type SyncTargetStatus struct {
	// LastHeartbeatTime is when the syncer last reported, by the server's clock.
	// +optional
	LastHeartbeatTime *metav1.Time `json:"lastSyncerHeartbeatTime,omitempty"`
	// SyncerVersion is the syncer's own version.
	// +optional
	SyncerVersion string `json:"syncerVersion,omitempty"`
	// SyncProtocol is the number of the protocol that the syncer last spoke, 0 when it
	// told none.
	// +optional
	SyncProtocol *int32 `json:"syncProtocol,omitempty"`
	// KubernetesVersion is the physical cluster's.
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// Key is the opaque name under which tenants meet this target.
	// +optional
	Key string `json:"key,omitempty"`
	// Namespaces counts the Assignments that name this target.
	// +optional
	Namespaces int32 `json:"namespaces"`
	// Drain is present while evictAfter is set.
	// +optional
	Drain *DrainStatus `json:"drain,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DrainState sums a drain up.
// +kubebuilder:validation:Enum=Waiting;Draining;Blocked;Empty
type DrainState string

const (
	// DrainWaiting means evictAfter lies in the future.
	DrainWaiting DrainState = "Waiting"
	// DrainDraining means namespaces are moving.
	DrainDraining DrainState = "Draining"
	// DrainBlocked means that what is left cannot move; Namespaces says why.
	DrainBlocked DrainState = "Blocked"
	// DrainEmpty means nothing is left: safe to work on.
	DrainEmpty DrainState = "Empty"
)

// MaxDrainNamespaces bounds DrainStatus.Namespaces; Remaining counts all.
const MaxDrainNamespaces = 100

// DrainStatus is the progress of a drain.
type DrainStatus struct {
	State DrainState `json:"state"`
	// ObservedEvictAfter is the spec.evictAfter that this status speaks of.
	// +optional
	ObservedEvictAfter *metav1.Time `json:"observedEvictAfter,omitempty"`
	// Remaining counts the namespaces that are still here.
	Remaining int32 `json:"remaining"`
	// Namespaces lists up to 100 of them, blocked ones first.
	// +optional
	// +listType=atomic
	Namespaces []DrainNamespace `json:"namespaces,omitempty"`
}

// DrainNamespace is one namespace on a draining target.
type DrainNamespace struct {
	// Workspace is the tenant's workspace path.
	Workspace string `json:"workspace"`
	Namespace string `json:"namespace"`
	// Stage is one of Pending, Applying, WaitingForPods, WaitingForGateway, Draining,
	// Removing, Blocked.
	Stage string `json:"stage"`
	// Message says in words what is waited for, or for Blocked why each candidate
	// cannot take it.
	// +optional
	Message string `json:"message,omitempty"`
}

// SyncTargetList is a list of SyncTargets.
// +kubebuilder:object:root=true
type SyncTargetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SyncTarget `json:"items"`
}
