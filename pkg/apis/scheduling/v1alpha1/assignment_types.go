package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AssignmentState is what the handover orders.
// +kubebuilder:validation:Enum=Active;Draining
type AssignmentState string

const (
	// AssignmentActive means: keep the namespace here, send it traffic once healthy.
	AssignmentActive AssignmentState = "Active"
	// AssignmentDraining means: keep it running, send it nothing new. The next step is
	// the deletion of the Assignment.
	AssignmentDraining AssignmentState = "Draining"
)

// AssignmentPhase is what has come of it.
// +kubebuilder:validation:Enum=Syncing;Serving;Draining;Removing
type AssignmentPhase string

const (
	AssignmentSyncing       AssignmentPhase = "Syncing"
	AssignmentServing       AssignmentPhase = "Serving"
	AssignmentPhaseDraining AssignmentPhase = "Draining"
	AssignmentRemoving      AssignmentPhase = "Removing"
)

// Assignment records that a namespace runs on a target. It stands in the namespace and
// is named by the target key, so there is one per (namespace, target). It is the only
// thing that is written when a namespace moves. The server owns it; the target's syncer
// takes away the finalizer when its copy is gone. Tenants may read it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=kcp
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Location",type=string,JSONPath=`.spec.location`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.spec.state`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Assignment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AssignmentSpec `json:"spec"`
	// +optional
	Status AssignmentStatus `json:"status,omitempty"`
}

// ServedByGateways reports whether gateways send traffic to the target. They do only
// where a Location of root, which the platform's administrators write, leads there: of a
// target that a tenant has registered, the tenant's own syncer says what its endpoints
// are, and could name any address that a gateway reaches.
func (a *Assignment) ServedByGateways() bool { return a.Spec.LocationPath == GatewayLocationPath }

// GatewayLocationPath is the workspace whose Locations gateways trust.
const GatewayLocationPath = "root"

// AssignmentSpec is the order.
type AssignmentSpec struct {
	// Location is the Location's name; LocationPath is the workspace that owns it.
	Location string `json:"location"`
	// +optional
	LocationPath string `json:"locationPath,omitempty"`
	// Target is the target key; it equals metadata.name.
	Target string `json:"target"`
	// Placement is the Placement that decided.
	Placement string `json:"placement"`
	// +kubebuilder:default=Active
	State AssignmentState `json:"state"`
	// DrainingSince is when State became Draining.
	// +optional
	DrainingSince *metav1.MicroTime `json:"drainingSince,omitempty"`
	// DrainDeadline is when open connections are given up.
	// +optional
	DrainDeadline *metav1.MicroTime `json:"drainDeadline,omitempty"`
	// Reason says in words why the namespace is, or is no longer, here.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// AssignmentStatus is the server's summary.
type AssignmentStatus struct {
	// +optional
	Phase AssignmentPhase `json:"phase,omitempty"`
	// Message says what is waited for.
	// +optional
	Message string `json:"message,omitempty"`
	// InFlight is the number of requests and streams that gateways last reported.
	// +optional
	InFlight int64 `json:"inFlight"`
}

// AssignmentList is a list of Assignments.
// +kubebuilder:object:root=true
type AssignmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Assignment `json:"items"`
}
