package virtual

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
)

// ownMirror allows mirrored objects with the caller's target label, before and after,
// under a name of that target.
func ownMirror(s *scope, c change) error {
	for _, obj := range c.states() {
		if obj.GetLabels()[workloadv1alpha1.TargetLabelKey] != s.target {
			return fmt.Errorf("a syncer writes only objects with label %s=%s", workloadv1alpha1.TargetLabelKey, s.target)
		}
	}
	if _, ok := names.Mirrored(s.target, c.name); !ok {
		return fmt.Errorf("the name must be one that this target gives (such as %q)", names.Mirror(s.target, "NAME"))
	}
	return nil
}

// ownReport allows SyncReports with the caller's target key, under a name that begins
// with it.
func ownReport(s *scope, c change) error {
	for _, obj := range c.states() {
		target, _, _ := unstructured.NestedString(obj.Object, "spec", "target")
		if target != s.target {
			return fmt.Errorf("a syncer writes only reports with spec.target %q", s.target)
		}
		if label, ok := obj.GetLabels()[workloadv1alpha1.TargetLabelKey]; ok && label != s.target {
			return fmt.Errorf("label %s must be %q", workloadv1alpha1.TargetLabelKey, s.target)
		}
	}
	if !strings.HasPrefix(c.name, s.target+"-") {
		return fmt.Errorf("the name must begin with %q", s.target+"-")
	}
	if c.new != nil && !reportable(c.new) {
		return errors.New("spec.group, version and resource must be those of a resource that syncers sync")
	}
	return nil
}

// reportable says whether a report is about a resource that is synced. The server writes
// what reports say into the object's status and follows its resource: a report about an
// Assignment would forge its status, one about something that does not exist would leave
// an informer of it behind.
func reportable(report *unstructured.Unstructured) bool {
	spec, _, _ := unstructured.NestedMap(report.Object, "spec")
	// Without limits there is nothing that the table of resources could lack.
	synced, _ := resources.Synced(nil)
	return slices.ContainsFunc(synced, func(r resources.Resource) bool {
		group, _ := spec["group"].(string)
		return group == r.Group && spec["version"] == r.Version && spec["resource"] == r.GroupVersionResource.Resource
	})
}

// finalizerOnly allows one change of the caller's own Assignment: its syncer finalizer
// goes.
func finalizerOnly(s *scope, c change) error {
	if targetOfAssignment(c.old) != s.target {
		return errors.New("this assignment is another target's")
	}
	// The API server refuses duplicates, so one at most is taken away.
	want := slices.DeleteFunc(slices.Clone(c.old.GetFinalizers()), func(f string) bool { return f == workloadv1alpha1.SyncerFinalizer })
	if !slices.Equal(want, c.new.GetFinalizers()) || !equality.Semantic.DeepEqual(bare(c.old), bare(c.new)) {
		return fmt.Errorf("a syncer may change nothing of an assignment but take away finalizer %q", workloadv1alpha1.SyncerFinalizer)
	}
	return nil
}

// removeFinalizer is the patch that finalizerOnly has allowed. It changes nothing else,
// whatever has happened to the object since.
func removeFinalizer(c change) []map[string]any {
	patch := []map[string]any{{"op": "test", "path": "/metadata/uid", "value": c.old.GetUID()}}
	if i := slices.Index(c.old.GetFinalizers(), workloadv1alpha1.SyncerFinalizer); i >= 0 {
		path := fmt.Sprintf("/metadata/finalizers/%d", i)
		patch = append(patch,
			map[string]any{"op": "test", "path": path, "value": workloadv1alpha1.SyncerFinalizer},
			map[string]any{"op": "remove", "path": path})
	}
	return patch
}

// bare returns obj without finalizers and what the storage keeps for itself.
func bare(obj *unstructured.Unstructured) map[string]any {
	out := obj.DeepCopy().Object
	for _, field := range []string{"finalizers", "managedFields", "resourceVersion"} {
		unstructured.RemoveNestedField(out, "metadata", field)
	}
	return out
}

// inRoot allows objects in root only.
func inRoot(_ *scope, c change) error {
	if c.cluster != logicalcluster.Root {
		return fmt.Errorf("these objects stand in cluster %q", logicalcluster.Root)
	}
	return nil
}
