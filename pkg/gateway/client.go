package gateway

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/version"
)

// client speaks to the gateway's virtual workspace.
type client struct{ rest *rest.RESTClient }

// newClient returns a client of the server that config names; its path is the base of
// the virtual workspace.
func newClient(config *rest.Config) (*client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme,
		networkingv1alpha1.AddToScheme, schedulingv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("cannot register API types: %w", err)
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config = rest.CopyConfig(config)
	config.APIPath = "/"
	config.GroupVersion = &schema.GroupVersion{Version: "v1"}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.UserAgent = "kcp-gateway/" + version.Get().Version
	// Reports are few, and the server has priority and fairness.
	config.QPS = -1
	rc, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for %q: %w", config.Host, err)
	}
	return &client{rc}, nil
}

func path(cluster logicalcluster.Name, gv schema.GroupVersion, namespace, resource, name string) []string {
	out := []string{"clusters", string(cluster), "apis", gv.Group, gv.Version}
	if gv.Group == "" {
		out = []string{"clusters", string(cluster), "api", gv.Version}
	}
	if namespace != "" {
		out = append(out, "namespaces", namespace)
	}
	if out = append(out, resource); name != "" {
		out = append(out, name)
	}
	return out
}

// watch returns the function that opens the stream of a resource in all clusters.
func (c *client) watch(gv schema.GroupVersion, resource string) informer.WatchFunc {
	return func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		options.Watch = true
		return c.rest.Get().
			AbsPath(path(logicalcluster.Wildcard, gv, "", resource, "")...).
			SpecificallyVersionedParams(&options, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).
			Watch(ctx)
	}
}

// Put implements report.Client: a merge patch, or a creation where nothing is there.
func (c *client) Put(ctx context.Context, resource string, key logicalcluster.Key, spec any) error {
	gv := networkingv1alpha1.GroupVersion
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return fmt.Errorf("cannot encode the spec: %w", err)
	}
	err = c.rest.Patch(types.MergePatchType).
		AbsPath(path(key.Cluster, gv, key.Namespace, resource, key.Name)...).
		Body(patch).Do(ctx).Error()
	if !apierrors.IsNotFound(err) {
		return err
	}
	object, err := json.Marshal(map[string]any{
		"apiVersion": gv.String(),
		"kind":       kinds[resource],
		"metadata":   map[string]any{"name": key.Name},
		"spec":       spec,
	})
	if err != nil {
		return fmt.Errorf("cannot encode the object: %w", err)
	}
	return c.rest.Post().
		AbsPath(path(key.Cluster, gv, key.Namespace, resource, "")...).
		SetHeader("Content-Type", runtime.ContentTypeJSON).
		Body(object).Do(ctx).Error()
}

// Delete implements report.Client.
func (c *client) Delete(ctx context.Context, resource string, key logicalcluster.Key) error {
	err := c.rest.Delete().
		AbsPath(path(key.Cluster, networkingv1alpha1.GroupVersion, key.Namespace, resource, key.Name)...).
		Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
