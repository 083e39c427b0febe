package session

import (
	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Assignments returns a client for the assignments of a namespace.
func (s *Session) Assignments(in logicalcluster.Path, namespace string) (*Client[*schedulingv1alpha1.Assignment, *schedulingv1alpha1.AssignmentList], error) {
	return client(s, in.RequestPath(), schedulingv1alpha1.GroupVersion, "assignments", namespace,
		func() *schedulingv1alpha1.Assignment { return &schedulingv1alpha1.Assignment{} },
		func() *schedulingv1alpha1.AssignmentList { return &schedulingv1alpha1.AssignmentList{} })
}

// SyncReports returns a client for what targets say of the objects of a namespace.
func (s *Session) SyncReports(in logicalcluster.Path, namespace string) (*Client[*workloadv1alpha1.SyncReport, *workloadv1alpha1.SyncReportList], error) {
	return client(s, in.RequestPath(), workloadv1alpha1.GroupVersion, "syncreports", namespace,
		func() *workloadv1alpha1.SyncReport { return &workloadv1alpha1.SyncReport{} },
		func() *workloadv1alpha1.SyncReportList { return &workloadv1alpha1.SyncReportList{} })
}

// GatewayReports returns a client for what gateways say of a namespace.
func (s *Session) GatewayReports(in logicalcluster.Path, namespace string) (*Client[*networkingv1alpha1.GatewayReport, *networkingv1alpha1.GatewayReportList], error) {
	return client(s, in.RequestPath(), networkingv1alpha1.GroupVersion, "gatewayreports", namespace,
		func() *networkingv1alpha1.GatewayReport { return &networkingv1alpha1.GatewayReport{} },
		func() *networkingv1alpha1.GatewayReportList { return &networkingv1alpha1.GatewayReportList{} })
}
