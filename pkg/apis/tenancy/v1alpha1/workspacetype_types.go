package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Names of the types that every server has, in root.
const (
	TypeRoot         = "root"
	TypeOrganization = "organization"
	TypeTeam         = "team"
	TypeUniversal    = "universal"
	TypeHome         = "home"
)

// WorkspaceType says what a workspace of this type starts with and where it may stand.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Default Placement",type=boolean,JSONPath=`.spec.defaultPlacement`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type WorkspaceType struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec WorkspaceTypeSpec `json:"spec,omitempty"`
}

// WorkspaceTypeSpec describes a type.
type WorkspaceTypeSpec struct {
	// DefaultPlacement gives new workspaces a Placement "default" that takes every
	// namespace and every effective Location.
	// +optional
	DefaultPlacement bool `json:"defaultPlacement,omitempty"`
	// DefaultChildType is the type of children that name none. Default: universal.
	// +optional
	DefaultChildType string `json:"defaultChildType,omitempty"`
	// AllowedParents lists the types below which this type may stand; empty allows any.
	// +optional
	// +listType=set
	AllowedParents []string `json:"allowedParents,omitempty"`
	// ServerOnly types are made by the server alone (root, home).
	// +optional
	ServerOnly bool `json:"serverOnly,omitempty"`
}

// WorkspaceTypeList is a list of WorkspaceTypes.
// +kubebuilder:object:root=true
type WorkspaceTypeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WorkspaceType `json:"items"`
}
