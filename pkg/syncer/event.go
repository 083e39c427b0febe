package syncer

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
)

// event tells the tenant, beside the object, that it could not be applied. It is best
// effort: the report says the same and is retried.
func (s *session) event(ctx context.Context, key objectKey, source *unstructured.Unstructured, message string) {
	now := metav1.Now()
	event := &corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: key.Name + ".", Namespace: key.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: key.Resource.GroupVersion().String(), Kind: key.Resource.Kind,
			Namespace: key.Namespace, Name: key.Name, UID: source.GetUID(),
			ResourceVersion: source.GetResourceVersion(),
		},
		Reason:              "SyncFailed",
		Message:             message,
		Type:                corev1.EventTypeWarning,
		Source:              corev1.EventSource{Component: "kcp-syncer"},
		ReportingController: "workload.kcp.io/syncer",
		ReportingInstance:   s.id.targetKey,
		Action:              "Apply",
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
	}
	if err := s.createEvent(ctx, key, event); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot write an event", "err", err)
	}
}

func (s *session) createEvent(ctx context.Context, key objectKey, event *corev1.Event) error {
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(event)
	if err != nil {
		return err
	}
	client, err := s.up.namespaced(corev1.SchemeGroupVersion.WithResource("events"), key.Cluster, key.Namespace)
	if err != nil {
		return err
	}
	_, err = client.Create(ctx, &unstructured.Unstructured{Object: u}, metav1.CreateOptions{})
	return err
}
