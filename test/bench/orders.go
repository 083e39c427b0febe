package bench

import (
	"encoding/json"
	"reflect"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// orders reports whether a change of an object asks for anything: that it came or went, or
// that more of it changed than its status, which only says how far something is.
func orders(e *clientv3.Event) bool {
	if e.PrevKv == nil || e.Type == clientv3.EventTypeDelete {
		return true
	}
	before, okBefore := wish(e.PrevKv.Value)
	after, okAfter := wish(e.Kv.Value)
	return !okBefore || !okAfter || !reflect.DeepEqual(before, after)
}

// wish is an object without its status, and without what every write changes.
func wish(stored []byte) (map[string]any, bool) {
	var obj map[string]any
	if json.Unmarshal(stored, &obj) != nil {
		return nil, false
	}
	delete(obj, "status")
	if metadata, ok := obj["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
	}
	return obj, true
}
