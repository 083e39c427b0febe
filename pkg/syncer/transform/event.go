package transform

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

// eventComponent is where a mirrored event comes from where it does not say.
const eventComponent = "kcp-syncer"

// MirrorEvent returns the event to show in the workspace for one about an object in the
// physical cluster; subject is what stands for that object in the workspace. words
// replaces what names a part of the physical cluster.
func MirrorEvent(down *corev1.Event, subject *unstructured.Unstructured, targetKey string, words func(string) string) *corev1.Event {
	first, last, count := occurrences(down)
	component := down.Source.Component
	if component == "" {
		component = down.ReportingController
	}
	if component == "" {
		component = eventComponent
	}
	return &corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      names.Event(targetKey, subject.GetName(), string(down.UID)),
			Namespace: subject.GetNamespace(),
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: subject.GetAPIVersion(), Kind: subject.GetKind(), Namespace: subject.GetNamespace(),
			Name: subject.GetName(), UID: subject.GetUID(), FieldPath: down.InvolvedObject.FieldPath,
		},
		Reason:         down.Reason,
		Message:        words(down.Message),
		Type:           down.Type,
		Source:         corev1.EventSource{Component: component},
		FirstTimestamp: first,
		LastTimestamp:  last,
		Count:          count,
	}
}

// LastSeen returns when what an event tells happened last.
func LastSeen(event *corev1.Event) time.Time {
	_, last, _ := occurrences(event)
	return last.Time
}

// occurrences reads when and how often, from either API's fields.
func occurrences(event *corev1.Event) (first, last metav1.Time, count int32) {
	first, last, count = event.FirstTimestamp, event.LastTimestamp, max(event.Count, 1)
	if first.IsZero() {
		first = metav1.NewTime(event.EventTime.Time)
	}
	if first.IsZero() {
		first = event.CreationTimestamp
	}
	if event.Series != nil {
		count = max(count, event.Series.Count)
		last = metav1.NewTime(event.Series.LastObservedTime.Time)
	}
	if last.IsZero() {
		last = first
	}
	return first, last, count
}
