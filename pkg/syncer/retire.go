package syncer

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

// isRetired reports whether the server itself has said that the SyncTarget with this
// name and uid does not exist any more. It says so only to who may sync the target, and
// after it has looked into its storage. A proxy's answer does not count.
func isRetired(err error) bool {
	return apierrors.IsGone(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// retire removes the namespaces that the syncer made, and nothing else: when its
// SyncTarget is gone, whatever ran here was moved or given up, and nobody will ever
// assign anything to this instance again.
func (s *Syncer) retire(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client := s.client.Resource(namespacesGVR)
	found, err := client.List(ctx, metav1.ListOptions{LabelSelector: names.SyncerLabel + "=" + s.id.instanceID})
	if err != nil {
		return fmt.Errorf("cannot list the namespaces of this syncer: %w", err)
	}
	var errs []error
	for i := range found.Items {
		ns := &found.Items[i]
		if _, ours := s.id.owner(ns); !ours || ns.GetDeletionTimestamp() != nil {
			continue
		}
		klog.FromContext(ctx).Info("Deleting the namespace downstream: its sync target is gone", "namespace", ns.GetName())
		err := client.Delete(ctx, ns.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(ns.GetUID())}})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("cannot delete downstream namespace %q: %w", ns.GetName(), err))
		}
	}
	return errors.Join(errs...)
}
