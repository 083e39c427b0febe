package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// HostsHeld is the condition of a HostClaim: false when another workspace holds a
	// host that the Ingress names.
	HostsHeld = "HostsHeld"
	// HostTaken is the reason of HostsHeld when it is false, and of the Event on the
	// Ingress.
	HostTaken = "HostTaken"
)

// HostClaim is the server's word on the hosts of one Ingress: which of them its workspace
// holds, and so which of its rules gateways serve. It stands beside the Ingress, under
// the same name. It never says who else holds a host. Tenants may read it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=kcp
// +kubebuilder:printcolumn:name="Held",type=string,JSONPath=`.status.conditions[?(@.type=="HostsHeld")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="HostsHeld")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type HostClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec HostClaimSpec `json:"spec"`
	// +optional
	Status HostClaimStatus `json:"status,omitempty"`
}

// HostClaimSpec is what gateways obey.
type HostClaimSpec struct {
	// IngressUID is the uid of the Ingress that this speaks of.
	IngressUID types.UID `json:"ingressUID"`
	// Hosts are those that the Ingress names, sorted.
	// +optional
	// +listType=map
	// +listMapKey=host
	Hosts []ClaimedHost `json:"hosts,omitempty"`
}

// ClaimedHost is one host of an Ingress.
type ClaimedHost struct {
	// Host is in lower case; empty stands for a rule without a host.
	Host string `json:"host"`
	// Held is true when it is this workspace's.
	Held bool `json:"held"`
}

// HostClaimStatus says in words what Hosts says.
type HostClaimStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Holds reports whether the workspace holds the host for the Ingress with that uid.
func (c *HostClaim) Holds(ingress types.UID, host string) bool {
	if c.Spec.IngressUID != ingress {
		return false
	}
	for _, h := range c.Spec.Hosts {
		if h.Host == host {
			return h.Held
		}
	}
	return false
}

// HostClaimList is a list of HostClaims.
// +kubebuilder:object:root=true
type HostClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HostClaim `json:"items"`
}
