// Package clients gives the server's own components clients for any logical cluster.
//
// All of them share one http.Client, hence one connection pool, and nothing is kept per
// cluster: a client is a base URL around the shared parts, made when it is needed and
// forgotten afterwards. logicalcluster.Wildcard is a cluster here like any other and
// stands for all of them, for list and watch.
//
// There is no client-side rate limit: the callers are work queues with their own, and
// a limit shared by all clusters would let one tenant slow the others.
//
// The product's own kinds are served from CRDs and speak JSON; native kinds speak
// protobuf.
package clients

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Clients makes clients for logical clusters of one server. It is safe for concurrent
// use.
type Clients struct {
	base *url.URL
	http *http.Client
	// config is what clients that want one are made from; its Host has no path.
	config *rest.Config

	json, protobuf, dynamic contentType
}

// contentType is one way to speak to the server.
type contentType struct {
	contentType, accept string
	serializer          runtime.NegotiatedSerializer
}

// New returns Clients over cfg, whose Host is the server's address without a path.
func New(cfg *rest.Config) (*Clients, error) {
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make clients for server %q: %w", cfg.Host, err)
	}
	config := rest.CopyConfig(cfg)
	config.Host = strings.TrimSuffix(base.String(), "/")
	config.QPS = -1
	config.RateLimiter = nil
	config.WarningHandlerWithContext = rest.NoWarnings{}
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make an HTTP client for server %q: %w", cfg.Host, err)
	}
	return &Clients{
		base:   base,
		http:   client,
		config: config,
		json:   contentType{runtime.ContentTypeJSON, runtime.ContentTypeJSON, codecs.WithoutConversion()},
		protobuf: contentType{
			runtime.ContentTypeProtobuf,
			runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
			kubescheme.Codecs.WithoutConversion(),
		},
		dynamic: contentType{runtime.ContentTypeJSON, runtime.ContentTypeJSON, dynamic.ConfigFor(config).NegotiatedSerializer},
	}, nil
}

// restClient returns a client for one group and version in one cluster; an empty
// version leaves the path to the caller.
func (c *Clients) restClient(content contentType, cluster logicalcluster.Name, gv schema.GroupVersion) rest.Interface {
	base := *c.base
	base.Path = strings.TrimSuffix(base.Path, "/") + cluster.Path().RequestPath()
	apiPath := "/apis"
	if gv.Group == "" {
		apiPath = "/api"
	}
	// NewRESTClient has no way to fail, whatever its signature says.
	client, _ := rest.NewRESTClient(&base, rest.DefaultVersionedAPIPath(apiPath, gv), rest.ClientContentConfig{
		ContentType:        content.contentType,
		AcceptContentTypes: content.accept,
		GroupVersion:       gv,
		Negotiator:         runtime.NewClientNegotiator(content.serializer, gv),
	}, nil, c.http)
	return client
}

// configFor returns the configuration of a client for one cluster. The copy is
// shallow: nothing below it is written to.
func (c *Clients) configFor(content contentType, cluster logicalcluster.Name) *rest.Config {
	cfg := *c.config
	cfg.Host += cluster.Path().RequestPath()
	cfg.ContentType = content.contentType
	cfg.AcceptContentTypes = content.accept
	cfg.NegotiatedSerializer = content.serializer
	return &cfg
}

// Dynamic returns a client for objects of any kind in cluster.
func (c *Clients) Dynamic(cluster logicalcluster.Name) dynamic.Interface {
	return dynamic.New(c.restClient(c.dynamic, cluster, schema.GroupVersion{}))
}

// Kube returns the whole native clientset for cluster. It builds a client for every
// API group; Core and RBAC are the cheap ones.
func (c *Clients) Kube(cluster logicalcluster.Name) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfigAndClient(c.configFor(c.protobuf, cluster), c.http)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for cluster %q: %w", cluster, err)
	}
	return client, nil
}

// Core returns a client for the core API group in cluster.
func (c *Clients) Core(cluster logicalcluster.Name) corev1client.CoreV1Interface {
	return corev1client.New(c.restClient(c.protobuf, cluster, schema.GroupVersion{Version: "v1"}))
}

// RBAC returns a client for the rbac.authorization.k8s.io API group in cluster.
func (c *Clients) RBAC(cluster logicalcluster.Name) rbacv1client.RbacV1Interface {
	return rbacv1client.New(c.restClient(c.protobuf, cluster, schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}))
}

// Metadata returns a client that reads and deletes objects of any kind by their
// metadata only.
func (c *Clients) Metadata(cluster logicalcluster.Name) (metadata.Interface, error) {
	client, err := metadata.NewForConfigAndClient(c.configFor(c.protobuf, cluster), c.http)
	if err != nil {
		return nil, fmt.Errorf("cannot make a metadata client for cluster %q: %w", cluster, err)
	}
	return client, nil
}

// Discovery returns a client that lists what cluster serves.
func (c *Clients) Discovery(cluster logicalcluster.Name) (discovery.DiscoveryInterface, error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(c.configFor(c.json, cluster), c.http)
	if err != nil {
		return nil, fmt.Errorf("cannot make a discovery client for cluster %q: %w", cluster, err)
	}
	return client, nil
}
