package status

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
)

// layer makes one status from those of several targets (at least one). old is the
// object's present status and may be empty.
type layer func(old map[string]any, entries []entry) map[string]any

var (
	deployment  = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	replicaSet  = schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	statefulSet = schema.GroupKind{Group: "apps", Kind: "StatefulSet"}
	daemonSet   = schema.GroupKind{Group: "apps", Kind: "DaemonSet"}
	job         = schema.GroupKind{Group: "batch", Kind: "Job"}
	service     = schema.GroupKind{Kind: "Service"}
	ingress     = schema.GroupKind{Group: "networking.k8s.io", Kind: "Ingress"}
	claim       = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	pod         = schema.GroupKind{Kind: "Pod"}
)

// counts lists the fields of a kind that are summed.
var counts = map[schema.GroupKind][]string{
	deployment:  {"replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas", "terminatingReplicas"},
	replicaSet:  {"replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "terminatingReplicas"},
	statefulSet: {"replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"},
	daemonSet: {
		"currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
		"updatedNumberScheduled", "numberAvailable", "numberUnavailable",
	},
}

var layers = map[schema.GroupKind]layer{
	deployment:  sum(deployment),
	replicaSet:  sum(replicaSet),
	statefulSet: mergeStatefulSet,
	daemonSet:   sum(daemonSet),
	job:         mergeJob,
	service:     mergeService,
	claim:       mergeClaim,
	pod:         mergePod,
}

// Aggregate returns the status that obj should have by these reports, and whether it
// differs from the one it has. With no report that counts, workloads run nothing and
// say so; other kinds keep what they have. An Ingress's status is the gateways', never
// a target's.
func Aggregate(obj *unstructured.Unstructured, reports []*workloadv1alpha1.SyncReport) (status map[string]any, changed bool) {
	old, _, _ := unstructured.NestedMap(obj.Object, "status")
	kind := groupKind(obj)
	if kind == ingress {
		return old, false
	}
	entries := decode(obj, reports)
	if len(entries) == 0 {
		status = idle(kind, old)
	} else {
		merge := layers[kind]
		if merge == nil {
			merge = mergeAny
		}
		status = merge(old, entries)
	}
	return status, !same(old, status)
}

// idle is the status of an object that no target runs.
func idle(kind schema.GroupKind, old map[string]any) map[string]any {
	fields, ok := counts[kind]
	if !ok || len(old) == 0 {
		return old
	}
	status := map[string]any{}
	if generation, ok := old["observedGeneration"]; ok {
		status["observedGeneration"] = generation
	}
	for _, f := range fields {
		status[f] = int64(0)
	}
	return status
}

// sum returns the layer of a kind whose status is counts and conditions.
func sum(kind schema.GroupKind) layer {
	return func(old map[string]any, entries []entry) map[string]any {
		status := mergeAny(old, entries)
		// The collision count is about names in one cluster, and may never decrease.
		delete(status, "collisionCount")
		for _, f := range counts[kind] {
			status[f] = total(entries, f)
		}
		return status
	}
}

func total(entries []entry, field string) int64 {
	var n int64
	for _, e := range entries {
		n += integer(e.status, field)
	}
	return n
}

// mergeAny serves any kind: the first target's status, with conditions merged and
// generations mapped back to the workspace's.
func mergeAny(_ map[string]any, entries []entry) map[string]any {
	status := runtime.DeepCopyJSON(entries[0].status)
	if slices.ContainsFunc(entries, func(e entry) bool { return e.status["observedGeneration"] != nil }) {
		status["observedGeneration"] = observedGeneration(entries)
	}
	if conditions := mergeConditions(entries); len(conditions) > 0 {
		status["conditions"] = conditions
	}
	return status
}

// observedGeneration is the least that any target has observed. A target that has
// observed nothing yet (a replacement which has just been given the object) does not
// count beside one that has: it was given the present generation.
func observedGeneration(entries []entry) int64 {
	var least int64
	for _, e := range entries {
		if e.observed > 0 && (least == 0 || e.observed < least) {
			least = e.observed
		}
	}
	return least
}

// mergeStatefulSet shows the revisions of a target that is still updating, if any.
func mergeStatefulSet(old map[string]any, entries []entry) map[string]any {
	status := sum(statefulSet)(old, entries)
	for _, e := range entries {
		if e.status["updateRevision"] != e.status["currentRevision"] {
			status["currentRevision"], status["updateRevision"] = e.status["currentRevision"], e.status["updateRevision"]
			break
		}
	}
	return status
}

// mergeJob keeps what a Job promises: once finished it stays finished, and counters
// never decrease. One target that finished it is enough.
func mergeJob(old map[string]any, entries []entry) map[string]any {
	if finished(old) {
		return old
	}
	for _, e := range entries {
		if finished(e.status) {
			return runtime.DeepCopyJSON(e.status)
		}
	}
	status := mergeAny(old, entries)
	delete(status, "uncountedTerminatedPods")
	for _, f := range []string{"active", "ready", "terminating"} {
		status[f] = total(entries, f)
	}
	for _, f := range []string{"succeeded", "failed"} {
		status[f] = max(total(entries, f), integer(old, f))
	}
	if start := text(old, "startTime"); start != "" {
		status["startTime"] = start
	}
	return status
}

func finished(status map[string]any) bool {
	for _, c := range conditionsOf(status) {
		if t := text(c, "type"); (t == "Complete" || t == "Failed") && text(c, "status") == "True" {
			return true
		}
	}
	return false
}

// mergeService shows the load balancers of all targets.
func mergeService(old map[string]any, entries []entry) map[string]any {
	status := mergeAny(old, entries)
	var all []any
	for _, e := range entries {
		points, _, _ := unstructured.NestedSlice(e.status, "loadBalancer", "ingress")
		for _, p := range points {
			if !slices.ContainsFunc(all, func(other any) bool { return reflect.DeepEqual(p, other) }) {
				all = append(all, p)
			}
		}
	}
	balancer := map[string]any{}
	if len(all) > 0 {
		balancer["ingress"] = all
	}
	status["loadBalancer"] = balancer
	return status
}

// mergeClaim shows the claim that is furthest from Bound.
func mergeClaim(old map[string]any, entries []entry) map[string]any {
	worst := slices.MaxFunc(entries, func(a, b entry) int {
		rank := map[string]int{"Bound": 0, "Pending": 1, "Lost": 2}
		return rank[text(a.status, "phase")] - rank[text(b.status, "phase")]
	})
	return mergeAny(old, []entry{worst})
}

// mergePod shows the pod that is furthest on, without the node, which is the target's
// affair.
func mergePod(old map[string]any, entries []entry) map[string]any {
	best := slices.MaxFunc(entries, func(a, b entry) int {
		rank := map[string]int{"Pending": 1, "Failed": 2, "Running": 3, "Succeeded": 4}
		return rank[text(a.status, "phase")] - rank[text(b.status, "phase")]
	})
	status := mergeAny(old, []entry{best})
	for _, f := range []string{"hostIP", "hostIPs", "nominatedNodeName"} {
		delete(status, f)
	}
	return status
}

// same compares as the API does: absent, null, zero and empty are one.
func same(a, b map[string]any) bool {
	return reflect.DeepEqual(essence(a), essence(b))
}

// essence returns v without what says nothing, or nil.
func essence(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, field := range v {
			if kept := essence(field); kept != nil {
				out[k] = kept
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		if len(v) == 0 {
			return nil
		}
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = essence(item)
		}
		return out
	case float64:
		return essence(int64(v))
	case int64:
		if v == 0 {
			return nil
		}
	case string:
		if v == "" {
			return nil
		}
	case bool:
		if !v {
			return nil
		}
	}
	return v
}

func conditionsOf(status map[string]any) []map[string]any {
	list, _ := status["conditions"].([]any)
	out := make([]map[string]any, 0, len(list))
	for _, item := range list {
		if c, ok := item.(map[string]any); ok {
			out = append(out, maps.Clone(c))
		}
	}
	return out
}
