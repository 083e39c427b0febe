package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WorkspacePhase says how far a workspace has come.
// +kubebuilder:validation:Enum=Scheduling;Initializing;Ready;Deleting
type WorkspacePhase string

const (
	WorkspacePhaseScheduling   WorkspacePhase = "Scheduling"
	WorkspacePhaseInitializing WorkspacePhase = "Initializing"
	WorkspacePhaseReady        WorkspacePhase = "Ready"
	WorkspacePhaseDeleting     WorkspacePhase = "Deleting"
)

// WorkspaceFinalizer holds a Workspace until its logical cluster's content is gone.
const WorkspaceFinalizer = "core.kcp.io/logicalcluster"

// OwnerAnnotationKey names the annotation, set by the server at creation, that carries
// the creator (JSON of authentication/v1 UserInfo without secrets). The creator becomes
// cluster-admin inside.
const OwnerAnnotationKey = "tenancy.kcp.io/owner"

// Workspace is a child of the workspace in which the object stands. Its content lives
// in the logical cluster named by spec.cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp,shortName=ws
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.URL`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a workspace name is a DNS label: lower-case letters, digits and '-', at most 63 characters"
type Workspace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec WorkspaceSpec `json:"spec,omitempty"`
	// +optional
	Status WorkspaceStatus `json:"status,omitempty"`
}

// WorkspaceSpec is what the user asks for, and what the server fixed once.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.cluster) || (has(self.cluster) && self.cluster == oldSelf.cluster)",message="spec.cluster is set by the server and never changes"
type WorkspaceSpec struct {
	// Type names the WorkspaceType. Default: universal.
	// +optional
	Type *WorkspaceTypeReference `json:"type,omitempty"`
	// Cluster is the id of the workspace's logical cluster; the server sets it.
	// +optional
	Cluster string `json:"cluster,omitempty"`
	// URL serves the workspace's API; the server sets it.
	// +optional
	URL string `json:"URL,omitempty"`
}

// WorkspaceTypeReference names a WorkspaceType.
type WorkspaceTypeReference struct {
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Path is the workspace that holds the type. Default: root.
	// +optional
	Path string `json:"path,omitempty"`
}

// WorkspaceStatus is written by the server.
type WorkspaceStatus struct {
	// +optional
	Phase WorkspacePhase `json:"phase,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WorkspaceList is a list of Workspaces.
// +kubebuilder:object:root=true
type WorkspaceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Workspace `json:"items"`
}
