package manifest

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

// TestLesson29Removal pins that all that Render makes is removed: by name, or with its namespace.
func TestLesson29Removal(t *testing.T) {
	o := options()
	o.Image = "example.com/syncer:v1"
	id := names.InstanceID(o.SyncTargetCluster, o.SyncTargetUID)
	removed, err := Removal(id)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, obj := range removed {
		got = append(got, obj.GetAPIVersion()+" "+obj.GetKind()+" "+obj.GetName())
	}
	var want []string
	for _, obj := range documents(t, o) {
		if obj.GetNamespace() == "" {
			want = append(want, obj.GetAPIVersion()+" "+obj.GetKind()+" "+obj.GetName())
		} else if obj.GetNamespace() != names.SyncerNamespace(id) {
			t.Errorf("%s %s is in namespace %q, which is not removed", obj.GetKind(), obj.GetName(), obj.GetNamespace())
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(slices.Values(got))); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	if removed[0].GetKind() != "Namespace" || removed[len(removed)-1].GetKind() != "ValidatingAdmissionPolicy" {
		t.Errorf("they are removed in the order %v", got)
	}
}
