package status

import (
	"cmp"
	"slices"
)

// anyTrue names the condition types of which one target's True decides: something is
// available, or something went wrong. Of all others one target's False decides.
var anyTrue = map[string]bool{
	"Available":      true,
	"ReplicaFailure": true,
	"Failed":         true,
	"Degraded":       true,
	"Stalled":        true,
	"Error":          true,
}

// mergeConditions returns one condition per type, in the order in which the types
// first appear.
func mergeConditions(entries []entry) []any {
	var order []string
	byType := map[string][]map[string]any{}
	for _, e := range entries {
		for _, c := range conditionsOf(e.status) {
			if c["observedGeneration"] != nil {
				c["observedGeneration"] = e.observed
			}
			t := text(c, "type")
			if byType[t] == nil {
				order = append(order, t)
			}
			byType[t] = append(byType[t], c)
		}
	}
	out := make([]any, 0, len(order))
	for _, t := range order {
		out = append(out, decisive(t, byType[t]))
	}
	return out
}

// decisive returns the condition that decides: by its status, and of several the one
// that changed last.
func decisive(conditionType string, conditions []map[string]any) map[string]any {
	rank := map[string]int{"False": 3, "Unknown": 2, "True": 1}
	if anyTrue[conditionType] {
		rank = map[string]int{"True": 3, "Unknown": 2, "False": 1}
	}
	return slices.MaxFunc(conditions, func(a, b map[string]any) int {
		return cmp.Or(
			cmp.Compare(rank[text(a, "status")], rank[text(b, "status")]),
			// Times are RFC 3339 in UTC, so they compare as text.
			cmp.Compare(text(a, "lastTransitionTime"), text(b, "lastTransitionTime")),
		)
	})
}
