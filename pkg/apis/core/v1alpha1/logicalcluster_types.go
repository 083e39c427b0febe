package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LogicalClusterName is the name of the one LogicalCluster object in every cluster.
const LogicalClusterName = "cluster"

// LogicalClusterPhase says how far a logical cluster has come.
// +kubebuilder:validation:Enum=Initializing;Ready;Deleting
type LogicalClusterPhase string

const (
	LogicalClusterPhaseInitializing LogicalClusterPhase = "Initializing"
	LogicalClusterPhaseReady        LogicalClusterPhase = "Ready"
	LogicalClusterPhaseDeleting     LogicalClusterPhase = "Deleting"
)

// LogicalCluster is the inside view of a workspace: one object, named "cluster", in
// the logical cluster that it describes. The server alone writes it; the status is no
// subresource, so that a cluster and its phase are one write.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Path",type=string,JSONPath=`.metadata.annotations.kcp\.io/path`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'cluster'",message="the only LogicalCluster of a workspace is named cluster"
type LogicalCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec LogicalClusterSpec `json:"spec,omitempty"`
	// +optional
	Status LogicalClusterStatus `json:"status,omitempty"`
}

// LogicalClusterSpec names the Workspace object that this cluster belongs to.
type LogicalClusterSpec struct {
	// Owner is absent only in root.
	// +optional
	Owner *LogicalClusterOwner `json:"owner,omitempty"`
	// Type is the workspace's type name.
	// +optional
	Type string `json:"type,omitempty"`
}

// LogicalClusterOwner points to the Workspace object in the parent cluster.
type LogicalClusterOwner struct {
	// Cluster is the id of the parent cluster.
	Cluster string `json:"cluster"`
	// Name is the Workspace's name in the parent cluster.
	Name string `json:"name"`
	// UID is the Workspace's uid.
	UID string `json:"uid"`
}

// LogicalClusterStatus is written by the server.
type LogicalClusterStatus struct {
	// +optional
	Phase LogicalClusterPhase `json:"phase,omitempty"`
	// URL serves this cluster's API.
	// +optional
	URL string `json:"URL,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// LogicalClusterList is a list of LogicalClusters.
// +kubebuilder:object:root=true
type LogicalClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LogicalCluster `json:"items"`
}
