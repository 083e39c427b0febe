package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DefaultPlacementName is the Placement that a workspace's type gives it.
const DefaultPlacementName = "default"

// PlacementPhase sums a Placement up.
// +kubebuilder:validation:Enum=Pending;Bound;Unbound
type PlacementPhase string

const (
	// PlacementPending means that no effective Location fits.
	PlacementPending PlacementPhase = "Pending"
	// PlacementBound means that namespaces run where this Placement put them.
	PlacementBound PlacementPhase = "Bound"
	// PlacementUnbound means that Locations fit and no namespace needs one yet.
	PlacementUnbound PlacementPhase = "Unbound"
)

// Placement says which namespaces of a workspace run at which Locations.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Namespaces",type=integer,JSONPath=`.status.namespaces`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Placement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec PlacementSpec `json:"spec,omitempty"`
	// +optional
	Status PlacementStatus `json:"status,omitempty"`
}

// PlacementSpec is what the tenant states.
type PlacementSpec struct {
	// NamespaceSelector selects namespaces of this workspace. Absent selects all.
	// Where two Placements select one namespace, the first by name decides.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// LocationSelectors select effective Locations by label; one match is enough.
	// Empty selects all.
	// +optional
	// +listType=atomic
	LocationSelectors []metav1.LabelSelector `json:"locationSelectors,omitempty"`
	// UnreachableToleration is how long a target may be silent before what runs there
	// is started elsewhere. Default 5m; a negative duration means forever.
	// +optional
	UnreachableToleration *metav1.Duration `json:"unreachableToleration,omitempty"`
	// DrainDeadline is how long open connections may go on at the old side once the
	// new side serves. Default 5m.
	// +optional
	DrainDeadline *metav1.Duration `json:"drainDeadline,omitempty"`
}

// PlacementStatus is the scheduler's word, for the tenant.
type PlacementStatus struct {
	// +optional
	Phase PlacementPhase `json:"phase,omitempty"`
	// Message sums up in a sentence.
	// +optional
	Message string `json:"message,omitempty"`
	// Namespaces counts the namespaces that this Placement has placed.
	// +optional
	Namespaces int32 `json:"namespaces"`
	// Candidates names every target of every fitting Location: whether a new namespace
	// could go there now, and if not why.
	// +optional
	// +listType=atomic
	Candidates []PlacementCandidate `json:"candidates,omitempty"`
}

// PlacementCandidate is one target as the scheduler judges it.
type PlacementCandidate struct {
	// Location is the Location's name; LocationPath is the workspace that owns it.
	Location string `json:"location"`
	// +optional
	LocationPath string `json:"locationPath,omitempty"`
	// Target is the target key.
	Target   string `json:"target"`
	Eligible bool   `json:"eligible"`
	// Reason is in words, e.g. "cordoned". For an eligible target it tells the score.
	Reason string `json:"reason"`
}

// PlacementList is a list of Placements.
// +kubebuilder:object:root=true
type PlacementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Placement `json:"items"`
}
