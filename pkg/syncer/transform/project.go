package transform

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Drift reports whether existing differs from what desired states. The fingerprint is
// of what existing has in the place of what desired states.
func Drift(desired, existing *unstructured.Unstructured) (fingerprint string, drifted bool, err error) {
	projected := Project(desired.Object, existing.Object)
	if reflect.DeepEqual(projected, any(desired.Object)) {
		return "", false, nil
	}
	b, err := json.Marshal(projected)
	if err != nil {
		return "", false, fmt.Errorf("cannot hash %s %q: %w", existing.GetKind(), existing.GetName(), err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16]), true, nil
}

// Project returns existing reduced to what desired speaks of: fields that only existing
// has (defaults, allocations, other writers' fields) are left out. In lists of equal
// length items are compared by place; otherwise the list is taken as it is. So
// Project(desired, existing) equals desired exactly when nothing of it has drifted.
func Project(desired, existing any) any {
	switch d := desired.(type) {
	case map[string]any:
		e, ok := existing.(map[string]any)
		if !ok {
			return existing
		}
		out := make(map[string]any, len(d))
		for field, value := range d {
			if other, ok := e[field]; ok {
				out[field] = Project(value, other)
			}
		}
		return out
	case []any:
		e, ok := existing.([]any)
		if !ok || len(e) != len(d) {
			return existing
		}
		out := make([]any, len(d))
		for i := range d {
			out[i] = Project(d[i], e[i])
		}
		return out
	default:
		return existing
	}
}
