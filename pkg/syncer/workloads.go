package syncer

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// removeWorkloads deletes the copies in a downstream namespace that run something, and
// returns how many there still are: they stay until the last pod of theirs has ended.
//
// What the pods use (Secrets, ConfigMaps, Services) thereby outlives them. It is also
// much faster than to delete the namespace at once: Kubernetes' namespace controller,
// when it finds pods that are still ending, looks again only after half of their grace
// period.
func (s *session) removeWorkloads(ctx context.Context, namespace string) (int, error) {
	left := 0
	for r, c := range s.down.copies {
		// A cache that does not become whole (a kind that the syncer may not read) must
		// not keep the namespace.
		if !r.Workload || !c.hasSynced() {
			continue
		}
		for obj := range c.inNamespace(namespace) {
			if !s.isCopy(obj) {
				continue
			}
			left++
			if obj.GetDeletionTimestamp() != nil {
				continue
			}
			err := s.down.namespaced(r, namespace).Delete(ctx, obj.GetName(), metav1.DeleteOptions{
				Preconditions:     &metav1.Preconditions{UID: ptr.To(obj.GetUID())},
				PropagationPolicy: ptr.To(metav1.DeletePropagationForeground),
			})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return left, fmt.Errorf("cannot delete %s %q in downstream namespace %q: %w", r, obj.GetName(), namespace, err)
			}
		}
	}
	return left, nil
}
