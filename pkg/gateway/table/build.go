package table

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
)

// Inputs are the API objects of one namespace.
type Inputs struct {
	Ingresses   []*networkingv1.Ingress
	Services    []*corev1.Service
	Assignments []*schedulingv1alpha1.Assignment
	// Slices without the label of a target are ignored.
	Slices []*discoveryv1.EndpointSlice
	// Claims say which hosts of the Ingresses are this workspace's.
	Claims []*networkingv1alpha1.HostClaim
}

// BuildNamespace returns the namespace's part of the table, without revision; nil when
// there is nothing to know: no Ingress to serve and no Assignment. It does not depend on
// the order of the inputs.
func BuildNamespace(key NamespaceKey, in Inputs) *Namespace {
	b := &builder{ns: &Namespace{NamespaceKey: key}, index: map[backendRef]int{}}
	for _, a := range in.Assignments {
		b.ns.Targets = append(b.ns.Targets, Target{
			Key:        a.Spec.Target,
			Generation: a.Generation,
			Draining:   a.Spec.State == schedulingv1alpha1.AssignmentDraining || a.DeletionTimestamp != nil,
		})
	}
	slices.SortFunc(b.ns.Targets, func(x, y Target) int { return cmp.Compare(x.Key, y.Key) })
	served := slices.DeleteFunc(slices.Clone(in.Ingresses), func(i *networkingv1.Ingress) bool { return !Served(i) })
	slices.SortFunc(served, older)
	b.collectBackends(served)
	for _, ingress := range served {
		b.addIngress(ingress, in.Claims)
	}
	if len(b.ns.Targets) == 0 && len(b.ns.Ingresses) == 0 {
		return nil
	}
	for i := range b.ns.Backends {
		b.ns.Backends[i].Endpoints = endpoints(&b.ns.Backends[i], b.ns.Targets, in)
	}
	return b.ns
}

// Served reports whether gateways serve the Ingress, by its class.
func Served(i *networkingv1.Ingress) bool {
	return networkingv1alpha1.ServesIngress(i.Spec.IngressClassName, i.Annotations)
}

// older orders Ingresses by age, then uid.
func older(x, y *networkingv1.Ingress) int {
	return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.UID, y.UID))
}

type backendRef struct{ service, port string }

type builder struct {
	ns    *Namespace
	index map[backendRef]int
}

// collectBackends numbers all backends in sorted order, so that equal inputs make equal
// tables.
func (b *builder) collectBackends(ingresses []*networkingv1.Ingress) {
	for _, i := range ingresses {
		if i.Spec.DefaultBackend != nil {
			b.index[refOf(i.Spec.DefaultBackend)] = 0
		}
		for _, rule := range i.Spec.Rules {
			for _, path := range rulePaths(&rule) {
				b.index[refOf(&path.Backend)] = 0
			}
		}
	}
	for ref := range b.index {
		b.ns.Backends = append(b.ns.Backends, Backend{Service: ref.service, Port: ref.port})
	}
	slices.SortFunc(b.ns.Backends, func(x, y Backend) int {
		return cmp.Or(cmp.Compare(x.Service, y.Service), cmp.Compare(x.Port, y.Port))
	})
	for n, backend := range b.ns.Backends {
		b.index[backendRef{backend.Service, backend.Port}] = n
	}
}

func refOf(b *networkingv1.IngressBackend) backendRef {
	switch {
	case b.Service == nil && b.Resource == nil:
		return backendRef{}
	case b.Service == nil:
		// The slash keeps it from being any Service's name: it has no endpoints.
		return backendRef{service: b.Resource.Kind + "/" + b.Resource.Name}
	case b.Service.Port.Name != "":
		return backendRef{b.Service.Name, b.Service.Port.Name}
	default:
		return backendRef{b.Service.Name, strconv.Itoa(int(b.Service.Port.Number))}
	}
}

func rulePaths(rule *networkingv1.IngressRule) []networkingv1.HTTPIngressPath {
	if rule.HTTP == nil {
		return nil
	}
	return rule.HTTP.Paths
}

func (b *builder) addIngress(i *networkingv1.Ingress, claims []*networkingv1alpha1.HostClaim) {
	held := func(host string) bool {
		return slices.ContainsFunc(claims, func(c *networkingv1alpha1.HostClaim) bool { return c.Name == i.Name && c.Holds(i.UID, host) })
	}
	out := Ingress{Name: i.Name, UID: i.UID, Created: i.CreationTimestamp.UTC()}
	var fallback *int
	if i.Spec.DefaultBackend != nil {
		n := b.index[refOf(i.Spec.DefaultBackend)]
		fallback = &n
	}
	if len(i.Spec.Rules) == 0 && fallback != nil && held("") {
		out.Hosts = []HostRules{{Default: fallback}}
	}
	for _, rule := range i.Spec.Rules {
		name := strings.ToLower(rule.Host)
		if !held(name) {
			continue
		}
		n := slices.IndexFunc(out.Hosts, func(h HostRules) bool { return h.Host == name })
		if n < 0 {
			n = len(out.Hosts)
			out.Hosts = append(out.Hosts, HostRules{Host: name, Default: fallback})
		}
		for _, path := range rulePaths(&rule) {
			out.Hosts[n].Paths = append(out.Hosts[n].Paths, PathRule{
				Path:    cmp.Or(path.Path, "/"),
				Exact:   path.PathType != nil && *path.PathType == networkingv1.PathTypeExact,
				Backend: b.index[refOf(&path.Backend)],
			})
		}
	}
	b.ns.Ingresses = append(b.ns.Ingresses, out)
}

// endpoints returns the backend's endpoints on the assigned targets, sorted.
func endpoints(backend *Backend, targets []Target, in Inputs) []Endpoint {
	portName, ok := servicePort(backend, in.Services)
	if !ok {
		return nil
	}
	byKey := map[Endpoint]EndpointState{}
	for _, slice := range in.Slices {
		target := slice.Labels[workloadv1alpha1.TargetLabelKey]
		assigned := slices.ContainsFunc(targets, func(t Target) bool { return t.Key == target })
		if !assigned || slice.Labels[discoveryv1.LabelServiceName] != backend.Service || slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		number, ok := slicePort(slice, portName)
		if !ok {
			continue
		}
		for _, e := range slice.Endpoints {
			state := stateOf(e.Conditions)
			for _, address := range e.Addresses {
				key := Endpoint{Target: target, Address: net.JoinHostPort(address, number)}
				// An endpoint may stand in two slices for a moment; the better word counts.
				if old, ok := byKey[key]; !ok || old != Ready && state != NotReady {
					byKey[key] = state
				}
			}
		}
	}
	out := make([]Endpoint, 0, len(byKey))
	for e, state := range byKey {
		e.State = state
		out = append(out, e)
	}
	slices.SortFunc(out, func(x, y Endpoint) int {
		return cmp.Or(cmp.Compare(x.Target, y.Target), cmp.Compare(x.Address, y.Address))
	})
	if len(out) == 0 {
		return nil
	}
	return out
}

// servicePort returns the name of the Service's port that the backend means.
func servicePort(backend *Backend, services []*corev1.Service) (string, bool) {
	for _, s := range services {
		if s.Name != backend.Service || s.Spec.Type == corev1.ServiceTypeExternalName {
			continue
		}
		for _, p := range s.Spec.Ports {
			if p.Name != "" && p.Name == backend.Port || strconv.Itoa(int(p.Port)) == backend.Port {
				return p.Name, true
			}
		}
	}
	return "", false
}

// slicePort returns the number that a Service's port has at the slice's endpoints.
func slicePort(slice *discoveryv1.EndpointSlice, name string) (string, bool) {
	for _, p := range slice.Ports {
		tcp := p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP
		named := p.Name == nil && name == "" || p.Name != nil && *p.Name == name
		if tcp && named && p.Port != nil {
			return strconv.Itoa(int(*p.Port)), true
		}
	}
	return "", false
}

// stateOf reads conditions as the API defines them: an absent ready means ready, an
// absent serving means what ready says.
func stateOf(c discoveryv1.EndpointConditions) EndpointState {
	ready := c.Ready == nil || *c.Ready
	serving := ready
	if c.Serving != nil {
		serving = *c.Serving
	}
	if c.Terminating != nil && *c.Terminating {
		if serving {
			return Terminating
		}
		return NotReady
	}
	if ready {
		return Ready
	}
	return NotReady
}
