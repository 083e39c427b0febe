package syncer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
	"github.com/13eedeaf/kcp/pkg/syncer/transform"
)

// reconcileObject makes the copy of an object what the object is, and the report what
// has come of the copy.
func (s *session) reconcileObject(ctx context.Context, key objectKey) (reconciler.Result, error) {
	sources, ok := s.sources[key.Resource]
	if _, active := s.assigned(key.namespaceKey); !ok || !active || !sources.HasSynced() {
		// Namespaces go as a whole, and what follows is enqueued when it can be done.
		return reconciler.Result{}, nil
	}
	namespace := s.id.namespace(key.namespaceKey)
	if copies := s.down.copies[key.Resource]; copies != nil && !copies.hasSynced() || !s.down.ready(namespace) {
		return reconciler.Result{}, nil
	}
	source, ok := sources.Get(key.Cluster, key.Namespace, key.Name)
	if ok && transform.Skipped(key.Resource, source) {
		return reconciler.Result{}, nil
	}
	if key.Resource.Confidential && s.unchanged(key, namespace, source) {
		return reconciler.Result{}, s.report(ctx, key, source, nil, nil)
	}
	existing, err := s.existing(ctx, key, namespace)
	if err != nil {
		return reconciler.Result{}, err
	}
	if !ok {
		return reconciler.Result{}, s.removeObject(ctx, key, existing)
	}
	if existing == nil && transform.Finished(key.Resource, source) {
		// It ran, perhaps on another target. It is not run again here.
		return reconciler.Result{}, s.report(ctx, key, source, source, nil)
	}
	current, wait, err := s.apply(ctx, key, source, existing)
	if err != nil && !permanent(err) {
		return reconciler.Result{}, err
	}
	reportErr := s.report(ctx, key, source, current, err)
	if current == nil && err == nil && key.Resource.Confidential {
		// It was deleted to be made anew, and no event will say that it is gone.
		wait = soon
	}
	return reconciler.Result{RequeueAfter: wait}, errors.Join(err, reportErr)
}

// unchanged reports whether the copy of a confidential object was made of just this
// source, and was as it should be when it was last looked at.
func (s *session) unchanged(key objectKey, namespace string, source *unstructured.Unstructured) bool {
	noted, ok := s.down.applied(key.Resource, namespace, key.Name)
	if !ok || noted.version == "" || source == nil {
		return false
	}
	desired, err := transform.Down(key.Resource, source, namespace, s.id.instanceID)
	return err == nil && hashOf(desired) == noted.hash
}

// existing returns the copy; nil when there is none.
func (s *session) existing(ctx context.Context, key objectKey, namespace string) (*unstructured.Unstructured, error) {
	if !key.Resource.Confidential {
		existing, _ := s.down.copies[key.Resource].get(namespace, key.Name)
		return existing, nil
	}
	if _, noted := s.down.applied(key.Resource, namespace, key.Name); !noted {
		// All that is ours was noted when the namespace was opened, and since.
		return nil, nil
	}
	existing, err := s.down.namespaced(key.Resource, namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.down.forget(key.Resource, namespace, key.Name)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s %q in downstream namespace %q: %w", key.Resource, key.Name, namespace, err)
	}
	return existing, nil
}

// removeObject deletes the copy, if there is one, and the report of an object that the
// streams do not show, once the server has confirmed that it is gone.
func (s *session) removeObject(ctx context.Context, key objectKey, existing *unstructured.Unstructured) error {
	s.settled.Delete(key)
	if existing != nil && s.isCopy(existing) && existing.GetDeletionTimestamp() == nil {
		gone, err := s.up.gone(ctx, key.Resource.GroupVersionResource, key.key(key.Name))
		if err != nil || !gone {
			// It exists: then the stream has yet to show it, and that is an event.
			return err
		}
		klog.FromContext(ctx).V(2).Info("Deleting the copy: the object is gone", "namespace", existing.GetNamespace())
		if err := s.deleteCopy(ctx, key, existing); err != nil {
			return err
		}
	}
	report, ok := s.reports.Get(key.Cluster, key.Namespace, s.reportName(key))
	if !ok {
		return nil
	}
	return s.deleteUp(ctx, resources.SyncReports, key.namespaceKey, report)
}

func (s *session) deleteCopy(ctx context.Context, key objectKey, existing *unstructured.Unstructured) error {
	err := s.down.namespaced(key.Resource, existing.GetNamespace()).Delete(ctx, key.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: ptr.To(existing.GetUID())},
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete %s %q in downstream namespace %q: %w", key.Resource, key.Name, existing.GetNamespace(), err)
	}
	// It may stay for a while, for the sake of its finalizers.
	s.down.doubt(key.Resource, existing.GetNamespace(), key.Name)
	return nil
}

// apply brings the copy to the object's state and returns it, or nil where it had to be
// deleted first. wait is set where drift was seen and its repair put off.
func (s *session) apply(ctx context.Context, key objectKey, source, existing *unstructured.Unstructured) (current *unstructured.Unstructured, wait time.Duration, err error) {
	namespace := s.id.namespace(key.namespaceKey)
	desired, err := transform.Down(key.Resource, source, namespace, s.id.instanceID)
	if err != nil {
		return existing, 0, err
	}
	if existing != nil {
		if existing.GetDeletionTimestamp() != nil {
			// It is applied again when it is gone.
			return existing, 0, nil
		}
		if key.Resource.RunsOnce && otherSource(existing, source) {
			return nil, 0, s.deleteCopy(ctx, key, existing)
		}
		done, wait, err := s.inSync(key, desired, existing)
		if done {
			s.down.note(key.Resource, existing)
		}
		if done || wait > 0 || err != nil {
			return existing, wait, err
		}
	}
	result, err := s.down.namespaced(key.Resource, namespace).Apply(ctx, key.Name, desired, metav1.ApplyOptions{FieldManager: names.FieldManager, Force: true})
	if err != nil {
		if existing != nil && apierrors.IsInvalid(err) && otherSource(existing, source) {
			// The object was deleted and made anew with what cannot be changed in place.
			return nil, 0, s.deleteCopy(ctx, key, existing)
		}
		return existing, 0, fmt.Errorf("cannot apply %s %q in downstream namespace %q: %w", key.Resource, key.Name, namespace, err)
	}
	s.down.note(key.Resource, result)
	klog.FromContext(ctx).V(4).Info("Applied", "namespace", namespace, "generation", source.GetGeneration())
	return result, 0, s.settle(key, desired, result)
}

// otherSource reports whether the copy was made from another object of the same name.
func otherSource(existing, source *unstructured.Unstructured) bool {
	uid := existing.GetAnnotations()[names.SourceUIDAnnotation]
	return uid != "" && uid != string(source.GetUID())
}

// inSync reports whether existing is what desired says, or what became of it at the
// last apply. wait is set where it is not, but was repaired only a moment ago.
func (s *session) inSync(key objectKey, desired, existing *unstructured.Unstructured) (done bool, wait time.Duration, err error) {
	if existing.GetAnnotations()[names.HashAnnotation] != desired.GetAnnotations()[names.HashAnnotation] {
		return false, 0, nil
	}
	fingerprint, drifted, err := transform.Drift(desired, existing)
	if err != nil || !drifted {
		return err == nil, 0, err
	}
	if settled, ok := s.settled.Load(key); ok && settled == fingerprint {
		return true, 0, nil
	}
	id, now := key.String(), s.drift.Clock.Now()
	if s.drift.IsInBackOffSinceUpdate(id, now) {
		return false, s.drift.Get(id), nil
	}
	s.drift.Next(id, now)
	return false, 0, nil
}

// settle remembers what an apply has led to where that is not what was applied.
func (s *session) settle(key objectKey, desired, result *unstructured.Unstructured) error {
	fingerprint, drifted, err := transform.Drift(desired, result)
	if err != nil {
		return err
	}
	if drifted {
		s.settled.Store(key, fingerprint)
	} else {
		s.settled.Delete(key)
	}
	return nil
}

// permanent reports whether an apply will fail again as long as nothing is changed, so
// that the tenant should know.
func permanent(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return false
	}
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsRequestEntityTooLargeError(err) ||
		apierrors.IsUnsupportedMediaType(err) || isTypeError(err)
}

// isTypeError recognizes what server-side apply answers, as an internal error, to an
// object that does not fit the cluster's schema.
func isTypeError(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed to create typed patch object")
}
