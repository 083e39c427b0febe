package virtual

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/server/admission"
	"github.com/13eedeaf/kcp/pkg/server/pki"
)

// gateway is the virtual workspace of the global ingress, with base /services/gateway:
// all Ingresses and what it takes to serve them. Gateways write their reports and
// instances, each its own: they share one identity and are trusted in the name.
func (h *Handler) gateway() *workspace {
	all := sets.New("create", "update", "patch", "delete")
	shown := func(*unstructured.Unstructured) audience { return everyone }
	showIf := func(wanted func(*unstructured.Unstructured) bool) func(*unstructured.Unstructured) audience {
		return func(obj *unstructured.Unstructured) audience {
			if wanted(obj) {
				return everyone
			}
			return nobody
		}
	}
	return &workspace{name: "gateway", enter: h.enterGateway, resources: []*resource{
		{
			gvr: schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}, kind: "Ingress", namespaced: true,
			audience: shown,
		},
		{
			gvr: schema.GroupVersionResource{Version: "v1", Resource: "services"}, kind: "Service", namespaced: true,
			audience: shown,
		},
		{
			// What tenants write themselves is not trusted.
			gvr: schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}, kind: "EndpointSlice", namespaced: true,
			audience: showIf(func(obj *unstructured.Unstructured) bool {
				_, mirrored := obj.GetLabels()[workloadv1alpha1.TargetLabelKey]
				return mirrored
			}),
		},
		{
			// Without its Assignment, a gateway uses no endpoint of a target.
			gvr: clients.AssignmentsResource, kind: "Assignment", namespaced: true,
			audience: showIf(func(obj *unstructured.Unstructured) bool {
				path, _, _ := unstructured.NestedString(obj.Object, "spec", "locationPath")
				return path == schedulingv1alpha1.GatewayLocationPath
			}),
		},
		{
			gvr: clients.HostClaimsResource, kind: "HostClaim", namespaced: true,
			audience: shown,
		},
		{
			gvr: clients.GatewayReportsResource, kind: "GatewayReport", namespaced: true,
			audience: shown,
			write:    &writeRule{verbs: all},
		},
		{
			gvr: clients.GatewayInstancesResource, kind: "GatewayInstance",
			audience: shown,
			write:    &writeRule{verbs: all, check: inRoot, stamp: stampRenewal},
		},
	}}
}

func (h *Handler) enterGateway(_ context.Context, u user.Info, path string) (*scope, string, error) {
	if !slices.Contains(u.GetGroups(), pki.GatewayGroup) && !slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return nil, "", apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf("user %q is no gateway: group %q is wanted", u.GetName(), pki.GatewayGroup))
	}
	return &scope{writer: admission.Gateway()}, path, nil
}
