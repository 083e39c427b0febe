package syncer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
	"github.com/13eedeaf/kcp/pkg/syncer/transform"
)

func (s *session) reportName(key objectKey) string {
	return names.Report(s.id.targetKey, key.Resource.Resource, key.Resource.Group, key.Name)
}

// reported returns the key of the object that a report of this target speaks of.
func (s *session) reported(report *unstructured.Unstructured) (objectKey, bool) {
	spec, _, _ := unstructured.NestedStringMap(report.Object, "spec")
	if spec["target"] != s.id.targetKey {
		return objectKey{}, false
	}
	for _, r := range s.synced {
		if r.GroupResource() == (schema.GroupResource{Group: spec["group"], Resource: spec["resource"]}) {
			return objectKey{namespaceOf(logicalcluster.KeyOf(report)), r, spec["name"]}, true
		}
	}
	return objectKey{}, false
}

// report writes what has come of an object, or removes the report where there is
// nothing to say. current is the copy, nil when there is none.
func (s *session) report(ctx context.Context, key objectKey, source, current *unstructured.Unstructured, applyErr error) error {
	previous, exists := s.reports.Get(key.Cluster, key.Namespace, s.reportName(key))
	desired := s.desiredReport(key, source, current, previous, applyErr)
	if desired == nil {
		if !exists {
			return nil
		}
		return s.deleteUp(ctx, resources.SyncReports, key.namespaceKey, previous)
	}
	if exists && reflect.DeepEqual(previous.Object["spec"], desired.Object["spec"]) && reflect.DeepEqual(previous.Object["report"], desired.Object["report"]) {
		return nil
	}
	client, err := s.up.namespaced(resources.SyncReports.GroupVersionResource, key.Cluster, key.Namespace)
	if err != nil {
		return err
	}
	if exists {
		desired.SetResourceVersion(previous.GetResourceVersion())
		_, err = client.Update(ctx, desired, metav1.UpdateOptions{FieldManager: names.FieldManager})
	} else {
		_, err = client.Create(ctx, desired, metav1.CreateOptions{FieldManager: names.FieldManager})
	}
	if apierrors.IsAlreadyExists(err) || (exists && apierrors.IsNotFound(err)) {
		// The stream lags behind an earlier write. What it shows next brings us back.
		err = apierrors.NewConflict(resources.SyncReports.GroupResource(), desired.GetName(), err)
	}
	if err != nil {
		return fmt.Errorf("cannot write report %s: %w", key.key(desired.GetName()), err)
	}
	return nil
}

// desiredReport returns nil where there is nothing to say.
func (s *session) desiredReport(key objectKey, source, current, previous *unstructured.Unstructured, applyErr error) *unstructured.Unstructured {
	var status map[string]any
	if current != nil {
		status = transform.Status(current)
	}
	if status == nil && applyErr == nil {
		return nil
	}
	spec := map[string]any{
		"target":   s.id.targetKey,
		"version":  key.Resource.Version,
		"resource": key.Resource.Resource,
		"name":     key.Name,
		"uid":      string(source.GetUID()),
	}
	if key.Resource.Group != "" {
		spec["group"] = key.Resource.Group
	}
	data := map[string]any{"synced": applyErr == nil}
	if applyErr != nil {
		data["reason"], data["message"] = s.explain(key, applyErr)
	}
	if status != nil {
		data["status"] = runtime.DeepCopyJSONValue(status)
	}
	applied, observed := generations(key.Resource, source, current)
	if previous != nil && observed == 0 {
		if uid, _, _ := unstructured.NestedString(previous.Object, "spec", "uid"); uid == spec["uid"] {
			observed, _, _ = unstructured.NestedInt64(previous.Object, "report", "observedGeneration")
		}
	}
	setNonZero(data, "appliedGeneration", applied)
	setNonZero(data, "observedGeneration", observed)

	report := &unstructured.Unstructured{Object: map[string]any{"spec": spec, "report": data}}
	report.SetGroupVersionKind(resources.SyncReports.GroupVersionKind())
	report.SetName(s.reportName(key))
	report.SetNamespace(key.Namespace)
	report.SetLabels(map[string]string{targetLabel: s.id.targetKey})
	return report
}

func setNonZero(m map[string]any, field string, value int64) {
	if value != 0 {
		m[field] = value
	}
}

// generations returns which generation of source was applied to its copy, and which one
// the copy's status speaks of; observed is 0 where the status speaks of an older one.
func generations(r resources.Resource, source, current *unstructured.Unstructured) (applied, observed int64) {
	if current == nil {
		return 0, 0
	}
	if current == source {
		// Finished elsewhere: it speaks of itself.
		return source.GetGeneration(), source.GetGeneration()
	}
	if otherSource(current, source) {
		return 0, 0
	}
	// The annotation and the spec were applied together, so the copy's generation is
	// that of the spec of the source's generation in the annotation.
	applied, err := strconv.ParseInt(current.GetAnnotations()[names.GenerationAnnotation], 10, 64)
	if err != nil {
		return 0, 0
	}
	seen, ok, _ := unstructured.NestedInt64(current.Object, "status", "observedGeneration")
	switch {
	case ok && seen >= current.GetGeneration():
		return applied, applied
	case !ok && !r.Observes:
		return applied, applied
	default:
		return applied, 0
	}
}

// explain puts an error into a tenant's words: without the downstream namespace's name.
func (s *session) explain(key objectKey, err error) (reason, message string) {
	reason = string(apierrors.ReasonForError(err))
	if reason == "" {
		reason = "ApplyFailed"
	}
	message = err.Error()
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		message = status.Status().Message
	}
	return reason, strings.ReplaceAll(message, s.id.namespace(key.namespaceKey), key.Namespace)
}
