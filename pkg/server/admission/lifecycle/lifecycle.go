// Package lifecycle keeps objects out of namespaces that do not exist or are going away.
//
// It does for many clusters what upstream's NamespaceLifecycle plugin does for one; that
// one cannot serve here, since its lister and its memory of deletions know no cluster.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"

	corev1 "k8s.io/api/core/v1"

	kcpstorage "github.com/13eedeaf/kcp/pkg/server/storage"
)

// PluginName is the name of the plugin in error messages and metrics.
const PluginName = "NamespaceLifecycle"

var namespaceKind = schema.GroupKind{Kind: "Namespace"}

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	namespaces kcpstorage.Reader
}

var _ admission.ValidationInterface = &Plugin{}
var _ io.Closer = &Plugin{}

// New returns the plugin; it reads namespaces from the registry.
func New(registry *kcpstorage.Registry) *Plugin {
	return &Plugin{
		Handler:    admission.NewHandler(admission.Create),
		namespaces: registry.Reader(core.Resource("namespaces")),
	}
}

// Close implements io.Closer; the plugin holds nothing.
func (p *Plugin) Close() error { return nil }

// Validate refuses a creation in a namespace that is missing (404) or terminating (403).
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	namespace := a.GetNamespace()
	if namespace == "" || a.GetKind().GroupKind() == namespaceKind || isAccessReview(a) {
		return nil
	}
	ns := &core.Namespace{}
	err := p.namespaces.Get(ctx, "", namespace, ns)
	if err != nil || ns.Status.Phase != core.NamespaceTerminating {
		// The cache may not have seen a namespace just made, or one just deleted.
		ns = &core.Namespace{}
		err = p.namespaces.GetLive(ctx, "", namespace, ns)
	}
	if storage.IsNotFound(err) {
		return apierrors.NewNotFound(core.Resource("namespaces"), namespace)
	}
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if ns.Status.Phase != core.NamespaceTerminating {
		return nil
	}
	forbidden := admission.NewForbidden(a, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace))
	if status := (*apierrors.StatusError)(nil); errors.As(forbidden, &status) {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{
			Type:    corev1.NamespaceTerminatingCause,
			Message: fmt.Sprintf("namespace %s is being terminated", namespace),
			Field:   "metadata.namespace",
		})
	}
	return forbidden
}

// isAccessReview recognizes reviews, which say nothing about whether a namespace exists.
func isAccessReview(a admission.Attributes) bool {
	return a.GetResource().Group == "authorization.k8s.io" && a.GetResource().Resource == "localsubjectaccessreviews"
}
