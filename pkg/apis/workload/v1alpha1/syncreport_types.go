package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// SyncReport is what one target says of one object of a tenant's namespace. Syncers
// write it, the server aggregates the reports of an object into the object's status,
// and tenants may read it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=kcp
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.target`
// +kubebuilder:printcolumn:name="Resource",type=string,JSONPath=`.spec.resource`
// +kubebuilder:printcolumn:name="Object",type=string,JSONPath=`.spec.name`
// +kubebuilder:printcolumn:name="Synced",type=boolean,JSONPath=`.report.synced`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.report.message`
type SyncReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SyncReportSpec `json:"spec"`
	// Report has no status subresource: the object has one writer and one purpose.
	Report SyncReportData `json:"report"`
}

// SyncReportSpec says which target speaks of which object.
type SyncReportSpec struct {
	// Target is the target key.
	Target string `json:"target"`
	// +optional
	Group    string `json:"group,omitempty"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Name     string `json:"name"`
	// UID is the uid of the object in the workspace.
	UID string `json:"uid"`
}

// SyncReportData is the target's word.
type SyncReportData struct {
	// Synced is true when the object was applied as of AppliedGeneration.
	Synced bool `json:"synced"`
	// Reason and Message explain Synced false, in words for the tenant.
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// AppliedGeneration is the generation of the workspace's object last applied here.
	// +optional
	AppliedGeneration int64 `json:"appliedGeneration,omitempty"`
	// ObservedGeneration is the generation of the workspace's object that the status
	// below speaks of: the target's controllers have seen it.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Status is the object's status in the physical cluster, as it stands there.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Status *runtime.RawExtension `json:"status,omitempty"`
}

// SyncReportList is a list of SyncReports.
// +kubebuilder:object:root=true
type SyncReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SyncReport `json:"items"`
}
