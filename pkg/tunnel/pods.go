package tunnel

import (
	"net/url"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// PodPattern, for http.ServeMux, is the one path that is asked for through a tunnel: a
// subresource of a pod in a namespace of a workspace. The pod's name is its name in the
// physical cluster; where the namespace is there, the syncer knows.
const PodPattern = "/clusters/{cluster}/namespaces/{namespace}/pods/{pod}/{subresource}"

// PodURL returns the URL of a pod's subresource for a request through a Transport.
func PodURL(target string, cluster logicalcluster.Name, namespace, pod, subresource string, query url.Values) *url.URL {
	u := &url.URL{Scheme: "http", Host: target, Path: "/", RawQuery: query.Encode()}
	return u.JoinPath("clusters", string(cluster), "namespaces", namespace, "pods", pod, subresource)
}
