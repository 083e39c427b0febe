package transform

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
)

// MirrorReplicaSet returns the replica set to show in the workspace, as one of owner, the
// workspace's Deployment. What kubectl needs to show a Deployment's history and to go
// back in it is as it is: revision, template, replicas.
//
// The uid of the original stands in a label: kubectl rollout undo makes the annotations
// of a replica set those of the user's Deployment.
func MirrorReplicaSet(down *unstructured.Unstructured, namespace, targetKey string, owner metav1.OwnerReference) *unstructured.Unstructured {
	out := mirrorMeta(resources.ReplicaSets, down, namespace, targetKey)
	labels := out.GetLabels()
	labels[names.MirrorUIDLabel] = string(down.GetUID())
	out.SetLabels(labels)
	out.SetAnnotations(Foreign(down.GetAnnotations()))
	out.SetOwnerReferences([]metav1.OwnerReference{owner})
	spec := map[string]any{}
	for _, field := range []string{"replicas", "minReadySeconds", "selector", "template"} {
		if value, ok, _ := unstructured.NestedFieldNoCopy(down.Object, "spec", field); ok {
			spec[field] = runtime.DeepCopyJSONValue(value)
		}
	}
	out.Object["spec"] = spec
	copyField(out, down, "status")
	// It speaks of the original's generation.
	remove(out, "status", "observedGeneration")
	return out
}

// Foreign returns what is not the control plane's own in labels or annotations.
func Foreign(in map[string]string) map[string]string { return foreign(in) }

// SameReplicaSet reports whether all of a mirror but its status is as desired.
func SameReplicaSet(desired, mirror *unstructured.Unstructured) bool {
	wanted, _, _ := unstructured.NestedInt64(desired.Object, "spec", "replicas")
	shown, _, _ := unstructured.NestedInt64(mirror.Object, "spec", "replicas")
	return wanted == shown && maps.Equal(desired.GetLabels(), mirror.GetLabels()) &&
		maps.Equal(desired.GetAnnotations(), foreign(mirror.GetAnnotations())) &&
		SameOwners(desired.GetOwnerReferences(), mirror.GetOwnerReferences())
}

// SameOwners compares owners by what identifies them.
func SameOwners(a, b []metav1.OwnerReference) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].UID != b[i].UID || a[i].Name != b[i].Name || a[i].Kind != b[i].Kind {
			return false
		}
	}
	return true
}
