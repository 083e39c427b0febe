package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Location groups SyncTargets and hides them: it is what tenants see and choose. A
// workspace inherits the Locations of its ancestors; of two with one name the nearest
// wins.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableInstances`
// +kubebuilder:printcolumn:name="Instances",type=integer,JSONPath=`.status.instances`
// +kubebuilder:printcolumn:name="Description",type=string,JSONPath=`.spec.description`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Location struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec LocationSpec `json:"spec,omitempty"`
	// +optional
	Status LocationStatus `json:"status,omitempty"`
}

// LocationSpec says which targets belong.
type LocationSpec struct {
	// Description is for people.
	// +optional
	Description string `json:"description,omitempty"`
	// TargetWorkspace is the path of the workspace that holds the SyncTargets. Default:
	// the Location's own.
	// +optional
	TargetWorkspace string `json:"targetWorkspace,omitempty"`
	// InstanceSelector selects SyncTargets by label. Absent selects all.
	// +optional
	InstanceSelector *metav1.LabelSelector `json:"instanceSelector,omitempty"`
}

// LocationStatus is written by the server.
type LocationStatus struct {
	// Instances counts the selected targets.
	// +optional
	Instances *int32 `json:"instances,omitempty"`
	// AvailableInstances counts those that are ready and schedulable.
	// +optional
	AvailableInstances *int32 `json:"availableInstances,omitempty"`
}

// LocationList is a list of Locations.
// +kubebuilder:object:root=true
type LocationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Location `json:"items"`
}
