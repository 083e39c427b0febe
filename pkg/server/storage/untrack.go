package storage

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/13eedeaf/kcp/pkg/server/admission"
)

// serverManager is the field manager that upstream makes of the user agent of the
// server's own clients.
var serverManager, _, _ = strings.Cut(rest.DefaultKubernetesUserAgent(), "/")

// untrack takes off what upstream has noted of who owns which field, where that is the
// server itself. Nobody needs to know: the server never applies, so it has no conflicts,
// and what it writes it writes again. Held as nested maps in every cache, it was a
// quarter of all that an empty workspace takes.
//
// Fields that have no owner go to whoever applies them; that is how objects from before
// server-side apply are treated. What users note of themselves stays.
func untrack(ctx context.Context, obj runtime.Object) error {
	if !admission.IsServer(ctx) {
		return nil
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	entries := accessor.GetManagedFields()
	// A copy: the slice may be shared with another object.
	kept := slices.DeleteFunc(slices.Clone(entries), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == serverManager && e.Operation == metav1.ManagedFieldsOperationUpdate
	})
	switch {
	case len(kept) == len(entries):
	case len(kept) == 0:
		accessor.SetManagedFields(nil)
	default:
		accessor.SetManagedFields(kept)
	}
	return nil
}
