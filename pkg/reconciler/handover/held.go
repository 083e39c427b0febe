package handover

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// hold is why an object keeps its namespace where it is.
type hold int

const (
	holdsNothing hold = iota
	// holdsData means that it keeps data on volumes of its target.
	holdsData
	// holdsIdentity means that its pods must not exist twice, as they would while the
	// namespace is handed over.
	holdsIdentity
	// holdsRun means that it is at work, and would begin again elsewhere.
	holdsRun
)

// holdOf says why an object of a tenant, of a kind that needs a place, may not be moved.
func holdOf(gvr schema.GroupVersionResource, obj *unstructured.Unstructured) hold {
	switch gvr {
	case claims:
		return holdsData
	case statefulSets:
		if templates, _, _ := unstructured.NestedSlice(obj.Object, "spec", "volumeClaimTemplates"); len(templates) > 0 {
			return holdsData
		}
		return holdsIdentity
	case jobs:
		if running(obj) {
			return holdsRun
		}
	case cronJobs:
		if active, _, _ := unstructured.NestedSlice(obj.Object, "status", "active"); len(active) > 0 {
			return holdsRun
		}
	}
	return holdsNothing
}

// running reports whether a Job has neither ended nor been suspended.
func running(job *unstructured.Unstructured) bool {
	if suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend"); suspended {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions")
	return !slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		ended := condition["type"] == string(batchv1.JobComplete) || condition["type"] == string(batchv1.JobFailed)
		return ended && condition["status"] == string(corev1.ConditionTrue)
	})
}

// maxNamed bounds how many objects of one sort a message names.
const maxNamed = 5

// heldBy says in words why objects hold their namespace: which they are, and what would
// happen to them. It returns "" when there are none.
func heldBy(objects map[hold][]string) string {
	var parts []string
	for _, h := range []struct {
		hold              hold
		before, one, many string
	}{
		{holdsData, "the data of ", " would be lost", " would be lost"},
		{holdsIdentity, "", " must not run twice", " must not run twice"},
		{holdsRun, "", " is running", " are running"},
	} {
		names := slices.Sorted(slices.Values(objects[h.hold]))
		if len(names) == 0 {
			continue
		}
		after := h.many
		if len(names) == 1 {
			after = h.one
		}
		if more := len(names) - maxNamed; more > 0 {
			names = append(names[:maxNamed], fmt.Sprintf("%d more", more))
		}
		parts = append(parts, h.before+strings.Join(names, ", ")+after)
	}
	return strings.Join(parts, "; ")
}
