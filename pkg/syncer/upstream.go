package syncer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/tunnel"
)

// requestTimeout bounds every request but watches.
const requestTimeout = 30 * time.Second

var syncTargets = workloadv1alpha1.GroupVersion.WithResource("synctargets")

// upstream is the virtual workspace of one SyncTarget. Clients for its clusters share
// one transport and are made when needed.
type upstream struct {
	base *rest.Config
	http *http.Client
	// upgrading is the transport of the tunnel.
	upgrading http.RoundTripper
}

func newUpstream(cfg *rest.Config) (*upstream, error) {
	base := rest.CopyConfig(cfg)
	base.Host = strings.TrimSuffix(base.Host, "/")
	// The queues limit themselves, and the server knows priority and fairness.
	base.QPS = -1
	base.RateLimiter = nil
	base.Wrap(func(rt http.RoundTripper) http.RoundTripper { return introducing{rt} })
	client, err := rest.HTTPClientFor(base)
	if err != nil {
		return nil, fmt.Errorf("cannot make an HTTP client for %q: %w", base.Host, err)
	}
	upgrading, err := tunnel.Transport(base)
	if err != nil {
		return nil, err
	}
	return &upstream{base: base, http: client, upgrading: upgrading}, nil
}

func (u *upstream) client(path string) (dynamic.Interface, error) {
	cfg := *u.base
	cfg.Host += path
	client, err := dynamic.NewForConfigAndClient(&cfg, u.http)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for %q: %w", cfg.Host, err)
	}
	return client, nil
}

// namespaced returns a client for one resource in one namespace of one cluster.
func (u *upstream) namespaced(gvr schema.GroupVersionResource, cluster logicalcluster.Name, namespace string) (dynamic.ResourceInterface, error) {
	client, err := u.client(cluster.Path().RequestPath())
	if err != nil {
		return nil, err
	}
	return client.Resource(gvr).Namespace(namespace), nil
}

// syncTargets returns a client for the SyncTarget itself, which is not in a cluster of
// the virtual workspace but at its base.
func (u *upstream) syncTargets() (dynamic.ResourceInterface, error) {
	client, err := u.client("")
	if err != nil {
		return nil, err
	}
	return client.Resource(syncTargets), nil
}

// stream returns a source of all of the target's objects of one resource. opened, when
// set, is called each time that the server has accepted a stream; deleted, when set,
// for each object that a stream says was deleted, before the informer hears of it.
func (u *upstream) stream(gvr schema.GroupVersionResource, opened func(), deleted func(*unstructured.Unstructured)) (informer.Source, error) {
	client, err := u.client(logicalcluster.Wildcard.Path().RequestPath())
	if err != nil {
		return nil, err
	}
	return informer.Stream(func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		w, err := client.Resource(gvr).Watch(ctx, options)
		if err != nil {
			return nil, err
		}
		if opened != nil {
			opened()
		}
		return observe(w, func(event watch.Event) {
			obj, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				return
			}
			// They are never looked at here, and often longer than the rest.
			obj.SetManagedFields(nil)
			if event.Type == watch.Deleted && deleted != nil {
				deleted(obj)
			}
		}), nil
	}), nil
}

// observedWatch passes on what another watch delivers.
type observedWatch struct {
	watch.Interface
	result chan watch.Event
	done   chan struct{}
	stop   sync.Once
}

// observe calls f for each event of w before it passes it on. Unlike watch.Filter it
// ends when nobody reads any more.
func observe(w watch.Interface, f func(watch.Event)) watch.Interface {
	o := &observedWatch{Interface: w, result: make(chan watch.Event), done: make(chan struct{})}
	go func() {
		defer close(o.result)
		for event := range w.ResultChan() {
			f(event)
			select {
			case o.result <- event:
			case <-o.done:
				return
			}
		}
	}()
	return o
}

func (o *observedWatch) ResultChan() <-chan watch.Event { return o.result }

func (o *observedWatch) Stop() {
	o.stop.Do(func() { close(o.done) })
	o.Interface.Stop()
}

// gone asks the server whether it has no such object, and believes only its own 404
// about that very object: a proxy's 404, or that of a server that does not know the
// resource, says nothing.
func (u *upstream) gone(ctx context.Context, gvr schema.GroupVersionResource, key logicalcluster.Key) (bool, error) {
	client, err := u.namespaced(gvr, key.Cluster, key.Namespace)
	if err != nil {
		return false, err
	}
	_, err = client.Get(ctx, key.Name, metav1.GetOptions{})
	if err == nil {
		return false, nil
	}
	if isMissing(err, key.Name) {
		return true, nil
	}
	return false, fmt.Errorf("cannot tell whether %s %s still exists: %w", gvr.GroupResource(), key, err)
}

func isMissing(err error, name string) bool {
	if !apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name == name
}
