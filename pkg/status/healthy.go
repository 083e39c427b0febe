package status

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
)

// Health is how a target's copy of an object does.
type Health struct {
	// Applied is true when the target has applied the object's present generation.
	Applied bool
	// Available counts the pods that do their work, of Wanted. Kinds without pods have
	// none of either.
	Available, Wanted int64
	// Healthy is true when the target runs the present generation in full.
	Healthy bool
	// Message says in words what is missing; empty when healthy.
	Message string
}

// Out reports whether nothing of the object works there, though it should.
func (h Health) Out() bool { return h.Wanted > 0 && h.Available == 0 }

// Healthy says whether the target that wrote report (nil when there is none) runs obj's
// present generation in full, and if not what is missing.
func Healthy(obj *unstructured.Unstructured, report *workloadv1alpha1.SyncReport) (healthy bool, message string) {
	h := HealthOf(obj, report)
	return h.Healthy, h.Message
}

// HealthOf says how the copy does of which report (nil when there is none) speaks.
func HealthOf(obj *unstructured.Unstructured, report *workloadv1alpha1.SyncReport) Health {
	if report != nil && report.Spec.UID != string(obj.GetUID()) {
		report = nil
	}
	h := Health{}
	var status map[string]any
	if report != nil {
		status = statusOf(report)
	}
	var problem string
	h.Available, h.Wanted, problem = pods(obj, status)

	name := fmt.Sprintf("%s %q", obj.GetKind(), obj.GetName())
	switch {
	case report == nil:
		h.Message = name + " has not been applied yet"
	case !report.Report.Synced:
		h.Message = fmt.Sprintf("%s could not be applied: %s", name, orElse(report.Report.Message, report.Report.Reason))
	case report.Report.AppliedGeneration < obj.GetGeneration():
		h.Message = fmt.Sprintf("%s has not been applied in its present generation yet", name)
	case gates(obj) && groupKind(obj) != pod && report.Report.ObservedGeneration < obj.GetGeneration():
		h.Applied = true
		h.Message = name + " has not been observed by its controller there yet"
	case problem != "":
		h.Applied = true
		h.Message = name + ": " + problem
	default:
		h.Applied, h.Healthy = true, true
	}
	return h
}

// Gates reports whether a handover waits for objects of this one's kind to be
// available: those that run pods for as long as they exist.
func Gates(obj *unstructured.Unstructured) bool { return gates(obj) }

func gates(obj *unstructured.Unstructured) bool {
	switch groupKind(obj) {
	case deployment, statefulSet, daemonSet, pod:
		return true
	}
	return false
}

// pods counts the object's pods and says in words what is missing.
func pods(obj *unstructured.Unstructured, status map[string]any) (available, wanted int64, problem string) {
	spec, _ := obj.Object["spec"].(map[string]any)
	switch groupKind(obj) {
	case deployment:
		wanted = replicas(spec)
		updated := integer(status, "updatedReplicas")
		if paused, _ := spec["paused"].(bool); paused {
			updated = wanted
		}
		return count(integer(status, "availableReplicas"), wanted, updated, wanted)
	case statefulSet:
		wanted = replicas(spec)
		partition, _, _ := unstructured.NestedInt64(spec, "updateStrategy", "rollingUpdate", "partition")
		return count(integer(status, "availableReplicas"), wanted, statefulSetUpdated(spec, status, wanted), max(wanted-partition, 0))
	case daemonSet:
		wanted = integer(status, "desiredNumberScheduled")
		updated := integer(status, "updatedNumberScheduled")
		if onDelete(spec) {
			updated = wanted
		}
		return count(integer(status, "numberAvailable"), wanted, updated, wanted)
	case pod:
		return podHealth(status)
	}
	return 0, 0, ""
}

func count(available, wanted, updated, wantedUpdated int64) (int64, int64, string) {
	switch {
	case updated < wantedUpdated:
		return available, wanted, fmt.Sprintf("%d of %d pods are up to date", updated, wantedUpdated)
	case available < wanted:
		return available, wanted, fmt.Sprintf("%d of %d pods are available", available, wanted)
	}
	return available, wanted, ""
}

func replicas(spec map[string]any) int64 {
	if spec["replicas"] == nil {
		return 1
	}
	return integer(spec, "replicas")
}

// statefulSetUpdated returns how many replicas are up to date. A StatefulSet whose
// update is complete may count none as updated, since its current revision is the
// updated one.
func statefulSetUpdated(spec, status map[string]any, wanted int64) int64 {
	if onDelete(spec) || status != nil && text(status, "currentRevision") == text(status, "updateRevision") {
		return wanted
	}
	return integer(status, "updatedReplicas")
}

func onDelete(spec map[string]any) bool {
	strategy, _, _ := unstructured.NestedString(spec, "updateStrategy", "type")
	return strategy == "OnDelete"
}

func podHealth(status map[string]any) (available, wanted int64, problem string) {
	if text(status, "phase") == "Succeeded" {
		return 1, 1, ""
	}
	for _, c := range conditionsOf(status) {
		if text(c, "type") == "Ready" && text(c, "status") == "True" {
			return 1, 1, ""
		}
	}
	return 0, 1, "it is not ready"
}

func orElse(s, other string) string {
	if s != "" {
		return s
	}
	return other
}
