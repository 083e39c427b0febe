package syncer

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

func TestObjectCache(t *testing.T) {
	c := newCache(dynamicFor(t, &rest.Config{}), pods, "", "", stripForeign)
	var handled []string
	c.handle = func(o *unstructured.Unstructured) { handled = append(handled, o.GetNamespace()+"/"+o.GetName()) }
	pod := func(namespace, name string, replicas int64) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{Object: map[string]any{"n": replicas, "metadata": map[string]any{
			"managedFields": []any{map[string]any{"manager": "kubelet"}},
		}}}
		obj.SetNamespace(namespace)
		obj.SetName(name)
		return obj
	}
	taken := func() []string {
		slices.Sort(handled)
		out := handled
		handled = nil
		return out
	}
	ours, more := names.Namespace("a", "x", "uid"), names.Namespace("b", "x", "uid")
	if ours > more {
		ours, more = more, ours
	}
	sink := (*cacheSink)(c)
	if err := sink.Replace([]any{pod(ours, "a", 1), pod(ours, "b", 1), pod(more, "a", 1), pod("default", "a", 1)}, ""); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{ours + "/a", ours + "/b", more + "/a"}, taken()); diff != "" {
		t.Errorf("handled of a list (-want +got):\n%s", diff)
	}
	if !c.hasSynced() || c.has("default", "a") || !c.has(ours, "b") {
		t.Errorf("synced %t, holds a foreign one %t, one of ours %t", c.hasSynced(), c.has("default", "a"), c.has(ours, "b"))
	}
	for _, step := range []struct {
		do   func(any) error
		obj  *unstructured.Unstructured
		want []string
	}{
		{sink.Update, pod(ours, "a", 2), []string{ours + "/a"}},
		{sink.Add, pod("default", "b", 2), nil},
		{sink.Delete, pod("default", "a", 1), nil},
		{sink.Delete, pod(ours, "b", 1), []string{ours + "/b"}},
	} {
		if err := step.do(step.obj); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, taken()); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
	}
	got, ok := c.get(ours, "a")
	want := pod(ours, "a", 2)
	want.SetManagedFields(nil)
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	got.SetName("changed by who asked for it")
	if again, _ := c.get(ours, "a"); again.GetName() != "a" {
		t.Error("what one reader changes another one sees")
	}
	if err := sink.Replace([]any{pod(ours, "c", 1)}, ""); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{ours + "/a", ours + "/c", more + "/a"}, taken()); diff != "" {
		t.Errorf("handled of a second list, what is gone included (-want +got):\n%s", diff)
	}
	var left []string
	for o := range c.inNamespace(ours) {
		left = append(left, o.GetName())
	}
	if diff := cmp.Diff([]string{"c"}, left); diff != "" || c.has(more, "a") {
		t.Errorf("left after a second list (-want +got):\n%s", diff)
	}
}
