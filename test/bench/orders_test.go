package bench

import (
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestOrders(t *testing.T) {
	const before = `{"metadata":{"name":"a","generation":1,"managedFields":[1]},"spec":{"state":"Active"},"status":{"phase":"Syncing"}}`
	put, deleted := clientv3.EventTypePut, clientv3.EventTypeDelete
	cases := map[string]struct {
		event  mvccpb.Event_EventType
		before string
		after  string
		want   bool
	}{
		"Created":    {put, "", before, true},
		"Deleted":    {deleted, before, "", true},
		"Status":     {put, before, `{"metadata":{"name":"a","generation":1,"managedFields":[2]},"spec":{"state":"Active"},"status":{"phase":"Serving"}}`, false},
		"Spec":       {put, before, `{"metadata":{"name":"a","generation":2},"spec":{"state":"Draining"},"status":{"phase":"Syncing"}}`, true},
		"Finalizers": {put, before, `{"metadata":{"name":"a","generation":1,"finalizers":["x"]},"spec":{"state":"Active"},"status":{"phase":"Syncing"}}`, true},
		"NotJSON":    {put, before, "k8s\x00", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := &clientv3.Event{Type: tc.event, Kv: &mvccpb.KeyValue{Value: []byte(tc.after)}}
			if tc.before != "" {
				e.PrevKv = &mvccpb.KeyValue{Value: []byte(tc.before)}
			}
			if got := orders(e); got != tc.want {
				t.Errorf("orders() = %t, want %t", got, tc.want)
			}
		})
	}
}
