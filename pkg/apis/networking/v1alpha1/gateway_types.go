package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GatewayInstance is one running `kcp gateway`. The objects stand in root; each gateway
// keeps its own fresh. One whose lease ran out confirms nothing.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.addresses[0]`
// +kubebuilder:printcolumn:name="Renewed",type=date,JSONPath=`.spec.renewTime`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
type GatewayInstance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec GatewayInstanceSpec `json:"spec"`
}

// GatewayInstanceSpec is a lease with addresses.
type GatewayInstanceSpec struct {
	// Addresses are IPs or host names at which clients reach this gateway.
	// +listType=atomic
	Addresses []string `json:"addresses"`
	// RenewTime is when the gateway last renewed, by the server's clock.
	RenewTime metav1.MicroTime `json:"renewTime"`
	// LeaseDurationSeconds is how long after RenewTime the gateway counts as live.
	LeaseDurationSeconds int32 `json:"leaseDurationSeconds"`
	// +optional
	Version string `json:"version,omitempty"`
}

// GatewayInstanceList is a list of GatewayInstances.
// +kubebuilder:object:root=true
type GatewayInstanceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GatewayInstance `json:"items"`
}

// GatewayReport is what one gateway says of one namespace: which targets it can reach,
// whether it sends them traffic, what is in flight. It stands in the namespace and is
// named by the gateway. Tenants may read it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=kcp
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.spec.tableRevision`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GatewayReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec GatewayReportSpec `json:"spec"`
}

// GatewayReportSpec is the gateway's word.
type GatewayReportSpec struct {
	// TableRevision identifies the routing table that was in force; it only grows.
	TableRevision int64 `json:"tableRevision"`
	// Targets has one entry per Assignment of the namespace that the table knew.
	// +optional
	// +listType=map
	// +listMapKey=target
	Targets []GatewayTargetReport `json:"targets,omitempty"`
}

// GatewayTargetReport is one target's share.
type GatewayTargetReport struct {
	// Target is the target key.
	Target string `json:"target"`
	// AssignmentGeneration is the generation of the Assignment that the table in force
	// was made from.
	AssignmentGeneration int64 `json:"assignmentGeneration"`
	// Accepting is true when new requests may be sent there.
	Accepting bool `json:"accepting"`
	// Endpoints counts the endpoints known, summed over the namespace's Ingress
	// backends; HealthyBackends and Backends count Ingress backends (service and port)
	// that have, or should have, at least one endpoint which answered a probe after the
	// table came into force.
	Endpoints       int32 `json:"endpoints"`
	Backends        int32 `json:"backends"`
	HealthyBackends int32 `json:"healthyBackends"`
	// InFlight counts requests and streams now open to this target.
	InFlight int64 `json:"inFlight"`
}

// GatewayReportList is a list of GatewayReports.
// +kubebuilder:object:root=true
type GatewayReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GatewayReport `json:"items"`
}
