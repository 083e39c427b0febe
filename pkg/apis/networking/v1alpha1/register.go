// Package v1alpha1 holds the API types of group networking.kcp.io, the global ingress: GatewayInstance, GatewayReport,
// HostClaim.
// The types are data: they know no other package of this repository but the names of
// logical clusters. Deepcopy functions and CRD YAML are generated (make generate).
//
// +groupName=networking.kcp.io
// +kubebuilder:object:generate=true
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "networking.kcp.io", Version: "v1alpha1"}

// AddToScheme registers the types of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &GatewayInstance{}, &GatewayInstanceList{}, &GatewayReport{}, &GatewayReportList{}, &HostClaim{}, &HostClaimList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
