package table

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// NamespaceKey identifies a namespace across all workspaces.
type NamespaceKey struct {
	Cluster   logicalcluster.Name `json:"cluster"`
	Namespace string              `json:"namespace"`
}

// Namespace is all that the table knows of one namespace. It is never changed once made.
type Namespace struct {
	NamespaceKey `json:",inline"`
	// Revision is that of the table in which this namespace last changed.
	Revision int64 `json:"revision"`
	// Targets are the namespace's assignments, by key.
	Targets []Target `json:"targets,omitempty"`
	// Backends are what the Ingresses refer to, by service and port.
	Backends []Backend `json:"backends,omitempty"`
	// Ingresses, the oldest first.
	Ingresses []Ingress `json:"ingresses,omitempty"`
}

// Target is one Assignment.
type Target struct {
	Key string `json:"key"`
	// Generation is the Assignment's.
	Generation int64 `json:"generation"`
	// Draining means: nothing new while another target can serve.
	Draining bool `json:"draining,omitempty"`
}

// Backend is a Service's port as Ingresses refer to it.
type Backend struct {
	Service string `json:"service"`
	// Port is the number or name by which the Ingress refers to it.
	Port      string     `json:"port"`
	Endpoints []Endpoint `json:"endpoints,omitempty"`
}

// EndpointState is what an endpoint is good for.
type EndpointState string

const (
	// Ready endpoints take requests.
	Ready EndpointState = "Ready"
	// Terminating endpoints still serve, but are going: they are the last resort.
	Terminating EndpointState = "Terminating"
	// NotReady endpoints take nothing.
	NotReady EndpointState = "NotReady"
)

// Endpoint is one address of a backend.
type Endpoint struct {
	Target string `json:"target"`
	// Address is IP:port.
	Address string        `json:"address"`
	State   EndpointState `json:"state"`
}

// Ingress is one Ingress's rules.
type Ingress struct {
	Name    string      `json:"name"`
	UID     types.UID   `json:"uid"`
	Created time.Time   `json:"created"`
	Hosts   []HostRules `json:"hosts,omitempty"`
}

// HostRules are what one Ingress says of one host.
type HostRules struct {
	// Host is in lower case; empty stands for all hosts.
	Host  string     `json:"host"`
	Paths []PathRule `json:"paths,omitempty"`
	// Default is an index of Backends: where paths that no rule matches go.
	Default *int `json:"default,omitempty"`
}

// PathRule leads a path to a backend.
type PathRule struct {
	Path  string `json:"path"`
	Exact bool   `json:"exact,omitempty"`
	// Backend is an index of the Namespace's Backends.
	Backend int `json:"backend"`
}

// Table is a routing table. It is never changed once made.
type Table struct {
	Revision   int64
	Namespaces map[NamespaceKey]*Namespace

	hosts map[string]*host
}

// host is one host's routes, all of them of the workspace that holds it.
type host struct {
	holder logicalcluster.Name
	// claims are all that Ingresses say of the host, the holder's and others'.
	claims   []claim
	exact    map[string]Route
	prefix   map[string]Route
	fallback *Route
}

// Route is where a request goes.
type Route struct {
	Namespace *Namespace
	// Backend is an index of Namespace.Backends.
	Backend int
}

// Match returns the route of a request for path at host; a port in host is ignored.
func (t *Table) Match(hostport, path string) (Route, bool) {
	h := t.findHost(normalizeHost(hostport))
	if h == nil {
		return Route{}, false
	}
	if r, ok := h.exact[path]; ok {
		return r, true
	}
	for p := strings.TrimSuffix(path, "/"); ; {
		if r, ok := h.prefix[p]; ok {
			return r, true
		}
		i := strings.LastIndexByte(p, '/')
		if i < 0 {
			break
		}
		p = p[:i]
	}
	if h.fallback != nil {
		return *h.fallback, true
	}
	return Route{}, false
}

func (t *Table) findHost(name string) *host {
	if h, ok := t.hosts[name]; ok && name != "" {
		return h
	}
	if _, parent, ok := strings.Cut(name, "."); ok {
		if h, ok := t.hosts["*."+parent]; ok {
			return h
		}
	}
	return t.hosts[""]
}

// Holder returns the workspace that holds a host as Ingresses spell it.
func (t *Table) Holder(name string) (logicalcluster.Name, bool) {
	h, ok := t.hosts[strings.ToLower(name)]
	if !ok {
		return "", false
	}
	return h.holder, true
}

// normalizeHost brings a Host header into the form of the table's keys.
func normalizeHost(hostport string) string {
	h := hostport
	if i := strings.LastIndexByte(h, ':'); i >= 0 && !strings.HasSuffix(h, "]") {
		h = h[:i]
	}
	h = strings.TrimSuffix(h, ".")
	for i := 0; i < len(h); i++ {
		if h[i] >= 'A' && h[i] <= 'Z' {
			return strings.ToLower(h)
		}
	}
	return h
}

// prefixKey is the form under which a Prefix rule is kept and looked up: without the
// trailing slash, which has no meaning in it. "/" becomes "".
func prefixKey(path string) string { return strings.TrimSuffix(path, "/") }
