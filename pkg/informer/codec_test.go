package informer_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

type codec struct{}

func (codec) Encode(obj *corev1.ConfigMap) ([]byte, error) { return json.Marshal(obj) }

func (codec) Decode(data []byte) (*corev1.ConfigMap, error) {
	obj := &corev1.ConfigMap{}
	return obj, json.Unmarshal(data, obj)
}

func TestCodec(t *testing.T) {
	s := newServer(t)
	for _, obj := range []*corev1.ConfigMap{configMap("a", "ns", "x", "1"), configMap("b", "ns", "x", "2"), configMap("b", "other", "y", "3"), configMap("b", "", "z", "3")} {
		obj.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
		s.put(obj)
	}
	byValue := map[string]informer.IndexFunc[*corev1.ConfigMap]{
		"value": func(obj *corev1.ConfigMap) []string { return []string{obj.Data["value"]} },
	}
	i := informer.New("configmaps", informer.Reflect(s.list, s.watch), byValue, informer.WithCodec[*corev1.ConfigMap](codec{}))
	run(t, i)
	if !i.WaitForSync(t.Context()) {
		t.Fatal("not synced")
	}
	for name, tc := range map[string]struct{ got, want []string }{
		"All":       {summary(i.List()), []string{"a|ns/x=1", "b|ns/x=2", "b|other/y=3", "b|z=3"}},
		"Cluster":   {summary(i.ListCluster("b")), []string{"b|ns/x=2", "b|other/y=3", "b|z=3"}},
		"Namespace": {summary(i.ListNamespace("b", "ns")), []string{"b|ns/x=2"}},
		"Index":     {summary(i.ByIndex("value", "3")), []string{"b|other/y=3", "b|z=3"}},
		"Keys":      {keys(i.Keys()), []string{"a|ns/x", "b|ns/x", "b|other/y", "b|z"}},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	got, ok := i.Get("b", "ns", "x")
	if !ok || got.Data["value"] != "2" || len(got.ManagedFields) != 0 {
		t.Fatalf("Get() = %v, %t", got, ok)
	}
	got.Data["value"] = "changed by who asked for it"
	if again, _ := i.Get("b", "ns", "x"); again.Data["value"] != "2" {
		t.Error("what one reader changes another one sees")
	}

	var seen events
	i.AddHandler(seen.handle)
	seen.take()
	w := s.next(t)
	w.Modify(s.put(configMap("b", "ns", "x", "4")))
	w.Delete(configMap("a", "ns", "x", "1"))
	var told []string
	eventually(t, "two events", func() bool {
		told = append(told, seen.take()...)
		return len(told) >= 2
	})
	slices.Sort(told)
	if diff := cmp.Diff([]string{"delete a|ns/x=1", "update b|ns/x=4"}, told); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func keys(list []logicalcluster.Key) []string {
	out := make([]string, len(list))
	for n, key := range list {
		out[n] = key.String()
	}
	slices.Sort(out)
	return out
}
