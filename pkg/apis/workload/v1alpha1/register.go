// Package v1alpha1 holds the API types of group workload.kcp.io, physical clusters and what they report: SyncTarget, SyncReport.
// The types are data: they know no other package of this repository but the names of
// logical clusters. Deepcopy functions and CRD YAML are generated (make generate).
//
// +groupName=workload.kcp.io
// +kubebuilder:object:generate=true
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "workload.kcp.io", Version: "v1alpha1"}

// AddToScheme registers the types of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &SyncReport{}, &SyncReportList{}, &SyncTarget{}, &SyncTargetList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
