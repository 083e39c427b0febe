package syncer

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
	"github.com/13eedeaf/kcp/pkg/syncer/transform"
)

// reconcileMirror makes the workspace show what runs in the physical cluster. Nothing
// is put off here: the gateway takes endpoints out of service by what this writes.
func (s *session) reconcileMirror(ctx context.Context, key mirrorKey) (reconciler.Result, error) {
	if a, _ := s.assigned(key.namespaceKey); a == nil {
		s.restarts.Delete(key)
		return reconciler.Result{}, nil
	}
	if key.Resource == resources.ReplicaSets {
		return s.reconcileReplicaSet(ctx, key)
	}
	live := s.live(key)
	mirror, exists := s.mirrors[key.Resource].Get(key.Cluster, key.Namespace, names.Mirror(s.id.targetKey, key.Name))
	switch {
	case live == nil && exists:
		return reconciler.Result{}, s.deleteUp(ctx, key.Resource, key.namespaceKey, mirror)
	case live == nil:
		s.restarts.Delete(key)
		return reconciler.Result{}, nil
	case exists && mirror.GetAnnotations()[names.MirrorUIDAnnotation] != string(live.GetUID()):
		// Another object of the same name, as of a StatefulSet. The deletion brings us
		// back to make a new mirror.
		return reconciler.Result{}, s.deleteUp(ctx, key.Resource, key.namespaceKey, mirror)
	case !exists && key.Resource == resources.Pods:
		return reconciler.Result{}, s.missingPod(ctx, key, live)
	}
	client, err := s.up.namespaced(key.Resource.GroupVersionResource, key.Cluster, key.Namespace)
	if err != nil {
		return reconciler.Result{}, err
	}
	if key.Resource == resources.Pods {
		return reconciler.Result{}, s.updatePod(ctx, client, key, live, mirror)
	}
	return reconciler.Result{}, s.writeSlice(ctx, client, key, live, mirror)
}

// live returns the object to mirror; nil when there is none.
func (s *session) live(key mirrorKey) *unstructured.Unstructured {
	obj, ok := s.shown()[key.Resource].get(s.id.namespace(key.namespaceKey), key.Name)
	if !ok || s.isCopy(obj) || (key.Resource == resources.EndpointSlices && transform.ServiceOf(obj) == "") {
		return nil
	}
	return obj
}

// missingPod makes the mirror of a pod, or restarts the pod when it was the mirror that
// somebody deleted.
func (s *session) missingPod(ctx context.Context, key mirrorKey, pod *unstructured.Unstructured) error {
	if pod.GetDeletionTimestamp() != nil {
		return nil
	}
	client, err := s.up.namespaced(key.Resource.GroupVersionResource, key.Cluster, key.Namespace)
	if err != nil {
		return err
	}
	if uid, ok := s.restarts.Load(key); ok {
		s.restarts.Delete(key)
		if uid == pod.GetUID() {
			restarted, err := s.restartPod(ctx, key, pod)
			if err != nil {
				s.restarts.Store(key, uid)
			}
			if restarted || err != nil {
				return err
			}
		}
	}
	desired := s.desiredPod(key, pod)
	created, err := client.Create(ctx, desired, metav1.CreateOptions{FieldManager: names.FieldManager})
	if apierrors.IsAlreadyExists(err) {
		// The stream will show it.
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot create mirror %s: %w", key, err)
	}
	return s.writePodStatus(ctx, client, key, desired, created)
}

// restartPod deletes the pod whose mirror a stream said was deleted, if the namespace
// is still assigned here and the server confirms the deletion. A mirror that is missing
// when a stream begins is made anew instead: a server that lost its data must not
// restart everything.
func (s *session) restartPod(ctx context.Context, key mirrorKey, pod *unstructured.Unstructured) (bool, error) {
	if _, active := s.assigned(key.namespaceKey); !active {
		return false, nil
	}
	gone, err := s.up.gone(ctx, key.Resource.GroupVersionResource, key.key(names.Mirror(s.id.targetKey, key.Name)))
	if err != nil || !gone {
		return false, err
	}
	klog.FromContext(ctx).Info("Deleting the pod: its mirror was deleted in the workspace", "pod", klog.KObj(pod))
	err = s.down.namespaced(resources.Pods, pod.GetNamespace()).Delete(ctx, pod.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: ptr.To(pod.GetUID())},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("cannot delete pod %s: %w", klog.KObj(pod), err)
	}
	return true, nil
}

// desiredPod returns the mirror of a pod, with its owner in the workspace if that is
// known; what comes to be known later brings us back.
func (s *session) desiredPod(key mirrorKey, pod *unstructured.Unstructured) *unstructured.Unstructured {
	desired := transform.MirrorPod(pod, key.Namespace, s.id.targetKey)
	if owner, ok := s.ownerOf(key.namespaceKey, pod); ok {
		desired.SetOwnerReferences([]metav1.OwnerReference{owner})
	}
	return desired
}

// updatePod brings the mirror's labels, owner and status to the pod's. A pod's spec hardly
// ever changes, and what may change in it is of no interest in the workspace.
func (s *session) updatePod(ctx context.Context, client dynamic.ResourceInterface, key mirrorKey, pod, mirror *unstructured.Unstructured) error {
	s.restarts.Delete(key)
	desired := s.desiredPod(key, pod)
	if !maps.Equal(desired.GetLabels(), mirror.GetLabels()) || !transform.SameOwners(desired.GetOwnerReferences(), mirror.GetOwnerReferences()) {
		relabelled := mirror.DeepCopy()
		relabelled.SetLabels(desired.GetLabels())
		relabelled.SetOwnerReferences(desired.GetOwnerReferences())
		updated, err := client.Update(ctx, relabelled, metav1.UpdateOptions{FieldManager: names.FieldManager})
		if err != nil {
			return fmt.Errorf("cannot update mirror %s: %w", key, err)
		}
		mirror = updated
	}
	if reflect.DeepEqual(desired.Object["status"], transform.MirrorPod(mirror, key.Namespace, s.id.targetKey).Object["status"]) {
		return nil
	}
	return s.writePodStatus(ctx, client, key, desired, mirror)
}

// writePodStatus writes the status of desired to mirror. There is no other writer, so
// it does not wait for the newest version to be known.
func (s *session) writePodStatus(ctx context.Context, client dynamic.ResourceInterface, key mirrorKey, desired, mirror *unstructured.Unstructured) error {
	out := mirror.DeepCopy()
	out.SetResourceVersion("")
	out.Object["status"] = desired.Object["status"]
	_, err := client.UpdateStatus(ctx, out, metav1.UpdateOptions{FieldManager: names.FieldManager})
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsInvalid(err):
		// A step of the pod's life that the mirror missed cannot be made up for.
		return s.deleteUp(ctx, key.Resource, key.namespaceKey, mirror)
	default:
		return fmt.Errorf("cannot update the status of mirror %s: %w", key, err)
	}
}

// writeSlice creates or updates the mirror of an endpoint slice; mirror is nil when
// none is known.
func (s *session) writeSlice(ctx context.Context, client dynamic.ResourceInterface, key mirrorKey, slice, mirror *unstructured.Unstructured) error {
	desired := transform.MirrorEndpointSlice(slice, key.Namespace, s.id.targetKey)
	if mirror != nil && sameSlice(desired, mirror) {
		return nil
	}
	var err error
	if mirror != nil {
		// No resourceVersion: there is no other writer, and no time to lose.
		_, err = client.Update(ctx, desired, metav1.UpdateOptions{FieldManager: names.FieldManager})
	}
	if mirror == nil || apierrors.IsNotFound(err) {
		_, err = client.Create(ctx, desired, metav1.CreateOptions{FieldManager: names.FieldManager})
		if apierrors.IsAlreadyExists(err) {
			_, err = client.Update(ctx, desired, metav1.UpdateOptions{FieldManager: names.FieldManager})
		}
	}
	if err != nil {
		return fmt.Errorf("cannot write mirror %s: %w", key, err)
	}
	return nil
}

func sameSlice(desired, mirror *unstructured.Unstructured) bool {
	for _, field := range []string{"addressType", "endpoints", "ports"} {
		if !reflect.DeepEqual(desired.Object[field], mirror.Object[field]) {
			return false
		}
	}
	return maps.Equal(desired.GetLabels(), mirror.GetLabels())
}
