// Package lifecycle keeps objects out of namespaces that do not exist or are going away.
//
// It does for many clusters what upstream's NamespaceLifecycle plugin does for one; that
// one cannot serve here, since its lister and its memory of deletions know no cluster.
//
// # What is read
//
// The watch cache, which costs nothing. It may lag behind the last write by a few
// milliseconds, so etcd is asked where that matters: when the cache has no such
// namespace, or a terminating one, and for a while after a deletion was asked for here.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/utils/clock"

	corev1 "k8s.io/api/core/v1"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	kcpstorage "github.com/13eedeaf/kcp/pkg/server/storage"
)

// PluginName is the name of the plugin in error messages and metrics.
const PluginName = "NamespaceLifecycle"

var namespaceKind = schema.GroupKind{Kind: "Namespace"}

const (
	// distrust is for how long the cache is not believed to know of a deletion; upstream
	// has the same.
	distrust = 30 * time.Second
	// maxDeleted bounds how many deletions are remembered, of all clusters.
	maxDeleted = 1000
)

// reader is what the plugin needs of storage.Reader.
type reader interface {
	Get(ctx context.Context, namespace, name string, out runtime.Object) error
	GetLive(ctx context.Context, namespace, name string, out runtime.Object) error
}

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	namespaces reader
	// deleted holds the namespaces, by logicalcluster.Key, that were asked to go lately.
	deleted *cache.LRUExpireCache
}

var _ admission.ValidationInterface = &Plugin{}
var _ io.Closer = &Plugin{}

// New returns the plugin; it reads namespaces from the registry.
func New(registry *kcpstorage.Registry) *Plugin {
	return newPlugin(registry.Reader(core.Resource("namespaces")), clock.RealClock{})
}

func newPlugin(namespaces reader, clock cache.Clock) *Plugin {
	return &Plugin{
		Handler:    admission.NewHandler(admission.Create, admission.Delete),
		namespaces: namespaces,
		deleted:    cache.NewLRUExpireCacheWithClock(maxDeleted, clock),
	}
}

// Close implements io.Closer; the plugin holds nothing.
func (p *Plugin) Close() error { return nil }

// Validate refuses a creation in a namespace that is missing (404) or terminating (403).
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	isNamespace := a.GetKind().GroupKind() == namespaceKind
	if a.GetOperation() == admission.Delete {
		if !isNamespace {
			return nil
		}
		key, err := keyOf(ctx, a.GetName())
		if err == nil {
			p.deleted.Add(key, nil, distrust)
		}
		return err
	}
	namespace := a.GetNamespace()
	if namespace == "" || isNamespace || isAccessReview(a) {
		return nil
	}
	terminating, err := p.terminating(ctx, namespace)
	if storage.IsNotFound(err) {
		return apierrors.NewNotFound(core.Resource("namespaces"), namespace)
	}
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if !terminating {
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

// terminating reads a namespace, from the cache where that is good enough.
func (p *Plugin) terminating(ctx context.Context, namespace string) (bool, error) {
	key, err := keyOf(ctx, namespace)
	if err != nil {
		return false, err
	}
	ns := &core.Namespace{}
	if _, distrusted := p.deleted.Get(key); !distrusted {
		err := p.namespaces.Get(ctx, "", namespace, ns)
		if err == nil && ns.Status.Phase != core.NamespaceTerminating {
			return false, nil
		}
		ns = &core.Namespace{}
	}
	err = p.namespaces.GetLive(ctx, "", namespace, ns)
	return ns.Status.Phase == core.NamespaceTerminating, err
}

func keyOf(ctx context.Context, namespace string) (logicalcluster.Key, error) {
	cluster, err := logicalcluster.FromContext(ctx)
	return logicalcluster.Key{Cluster: cluster, Name: namespace}, err
}

// isAccessReview recognizes reviews, which say nothing about whether a namespace exists.
func isAccessReview(a admission.Attributes) bool {
	return a.GetResource().Group == "authorization.k8s.io" && a.GetResource().Resource == "localsubjectaccessreviews"
}
