package transform

import (
	"maps"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
)

// managedBy is the value of the managed-by label of mirrored endpoint slices: no
// controller but the syncer keeps them.
const managedBy = "kcp-syncer"

// mirrorMeta starts a mirror of down in namespace of the workspace.
func mirrorMeta(r resources.Resource, down *unstructured.Unstructured, namespace, targetKey string) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	out.SetGroupVersionKind(r.GroupVersionKind())
	out.SetName(names.Mirror(targetKey, down.GetName()))
	out.SetNamespace(namespace)
	labels := foreign(down.GetLabels())
	labels[workloadv1alpha1.TargetLabelKey] = targetKey
	out.SetLabels(labels)
	out.SetAnnotations(map[string]string{names.MirrorUIDAnnotation: string(down.GetUID())})
	return out
}

// MirrorPod returns the pod to show in the workspace for one that runs in the physical
// cluster. What names a part of that cluster (node, addresses of nodes, token volumes)
// is left out.
func MirrorPod(down *unstructured.Unstructured, namespace, targetKey string) *unstructured.Unstructured {
	out := mirrorMeta(resources.Pods, down, namespace, targetKey)
	annotations := foreign(down.GetAnnotations())
	maps.Copy(annotations, out.GetAnnotations())
	out.SetAnnotations(annotations)
	copyField(out, down, "spec")
	cleanPod(out, annotations)
	for _, field := range []string{"priorityClassName", "runtimeClassName", "resourceClaims", "schedulingGates", "hostname", "subdomain"} {
		remove(out, "spec", field)
	}
	copyField(out, down, "status")
	// The quality of service is computed from the spec by each side; the rest names
	// nodes or devices.
	for _, field := range []string{"hostIP", "hostIPs", "nominatedNodeName", "qosClass", "observedGeneration", "resourceClaimStatuses", "extendedResourceClaimStatus"} {
		remove(out, "status", field)
	}
	return out
}

// MirrorEndpointSlice returns the endpoint slice to show in the workspace: addresses,
// ports and conditions as they are, targets renamed to the mirrored pods.
func MirrorEndpointSlice(down *unstructured.Unstructured, namespace, targetKey string) *unstructured.Unstructured {
	out := mirrorMeta(resources.EndpointSlices, down, namespace, targetKey)
	labels := out.GetLabels()
	labels[discoveryv1.LabelManagedBy] = managedBy
	out.SetLabels(labels)
	for _, field := range []string{"addressType", "endpoints", "ports"} {
		copyField(out, down, field)
	}
	endpoints, _, _ := unstructured.NestedFieldNoCopy(out.Object, "endpoints")
	list, _ := endpoints.([]any)
	for _, item := range list {
		endpoint, ok := item.(map[string]any)
		if !ok {
			continue
		}
		for _, field := range []string{"nodeName", "zone", "hints", "deprecatedTopology"} {
			delete(endpoint, field)
		}
		translateTarget(endpoint, namespace, targetKey)
	}
	return out
}

func translateTarget(endpoint map[string]any, namespace, targetKey string) {
	kind, _, _ := unstructured.NestedString(endpoint, "targetRef", "kind")
	name, _, _ := unstructured.NestedString(endpoint, "targetRef", "name")
	delete(endpoint, "targetRef")
	if kind == "Pod" {
		endpoint["targetRef"] = map[string]any{"kind": kind, "namespace": namespace, "name": names.Mirror(targetKey, name)}
	}
}

func copyField(to, from *unstructured.Unstructured, field string) {
	if value, ok := from.Object[field]; ok {
		to.Object[field] = runtime.DeepCopyJSONValue(value)
	}
}

// ServiceOf returns the name of the service that an endpoint slice belongs to, or "".
func ServiceOf(slice *unstructured.Unstructured) string {
	return slice.GetLabels()[discoveryv1.LabelServiceName]
}

// Status returns obj's status, or nil where it says nothing: absent, or made of empty
// maps and lists alone, as the API server fills it in for a new object.
func Status(obj *unstructured.Unstructured) map[string]any {
	status, ok := obj.Object["status"].(map[string]any)
	if !ok || !says(status) {
		return nil
	}
	return status
}

func says(value any) bool {
	switch v := value.(type) {
	case nil:
		return false
	case map[string]any:
		for _, field := range v {
			if says(field) {
				return true
			}
		}
		return false
	case []any:
		return len(v) > 0
	default:
		return true
	}
}
