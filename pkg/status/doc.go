// Package status turns what targets report of an object into the object's own status,
// and says whether a target's copy does its work. It is pure.
//
// # Aggregation
//
// There is a layer per kind: replica counts are summed, conditions merged, and
// observedGeneration is the least that a target has observed, so that clients which
// wait for a rollout wait for all of it. Kinds without a layer have their conditions
// merged, and the rest copied from the first report.
//
// A report counts when it speaks of this very object (by uid) and carries a status. The
// caller leaves out reports of targets that no longer hold the object: a status says
// what is, not what was.
//
// # Health
//
// Healthy is the gate of a handover: the copy runs the present generation in full.
package status

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
)

// entry is one report that counts.
type entry struct {
	target   string
	observed int64
	status   map[string]any
}

// decode returns the reports that count, in the order of their target keys. One whose
// status is no JSON object counts as absent.
func decode(obj *unstructured.Unstructured, reports []*workloadv1alpha1.SyncReport) []entry {
	var out []entry
	for _, r := range reports {
		if r.Spec.UID != string(obj.GetUID()) {
			continue
		}
		if status := statusOf(r); status != nil {
			out = append(out, entry{target: r.Spec.Target, observed: r.Report.ObservedGeneration, status: status})
		}
	}
	slices.SortFunc(out, func(a, b entry) int { return cmp.Compare(a.target, b.target) })
	return out
}

func statusOf(r *workloadv1alpha1.SyncReport) map[string]any {
	if r.Report.Status == nil {
		return nil
	}
	var status map[string]any
	if err := json.Unmarshal(r.Report.Status.Raw, &status); err != nil {
		return nil
	}
	return status
}

func groupKind(obj *unstructured.Unstructured) schema.GroupKind {
	return obj.GroupVersionKind().GroupKind()
}

// integer returns the number under key, 0 when there is none.
func integer(m map[string]any, key string) int64 {
	switch n := m[key].(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}

func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}
