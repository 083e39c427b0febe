package proxy

import (
	"github.com/13eedeaf/kcp/pkg/gateway/table"
)

// Status is what the gateway can say of a namespace now.
type Status struct {
	// Revision is the table revision since which all of this holds: probes count only
	// if they began after it came into force.
	Revision int64
	// Answered is true when every endpoint has been probed since.
	Answered bool
	Targets  []TargetStatus
}

// TargetStatus is one target's share; see GatewayTargetReport.
type TargetStatus struct {
	Target     string
	Generation int64
	Draining   bool
	// Accepting is true when new requests may be sent there: it is active, or it drains
	// but is all that is left for some backend.
	Accepting bool
	// Backends counts the Ingress backends that some target has endpoints for.
	Endpoints, Backends, HealthyBackends int32
	InFlight                             int64
}

// Status returns the state of a namespace in the table in force; false when that does
// not have it.
func (p *Proxy) Status(key table.NamespaceKey) (Status, bool) {
	rt := p.current.Load()
	if rt == nil || rt.table.Namespaces[key] == nil {
		return Status{}, false
	}
	ns := rt.namespaces[rt.table.Namespaces[key]]
	out := Status{Revision: ns.data.Revision, Answered: true}
	for i, t := range ns.data.Targets {
		state := ns.targets[i]
		s := TargetStatus{
			Target:     t.Key,
			Generation: t.Generation,
			Draining:   t.Draining,
			Accepting:  !t.Draining,
			InFlight:   state.inFlight.Load(),
		}
		for j, data := range ns.data.Backends {
			if len(data.Endpoints) == 0 {
				// No target has it, so none should: an Ingress may name a Service
				// that does not exist, or one that is scaled to zero.
				continue
			}
			s.Backends++
			for _, e := range data.Endpoints {
				if e.Target == t.Key {
					s.Endpoints++
				}
			}
			if ns.confirmed(ns.backends[j], state) {
				s.HealthyBackends++
			}
			if t.Draining && ns.backends[j].fallsBackTo(state) {
				s.Accepting = true
			}
		}
		out.Targets = append(out.Targets, s)
	}
	ns.endpoints(func(e *endpoint) {
		if e.answered.Load() < ns.epoch {
			out.Answered = false
		}
	})
	return out, true
}

// confirmed reports whether a ready endpoint of b at t answered a probe that began after
// this version of the namespace came into force.
func (ns *namespace) confirmed(b *backend, t *target) bool {
	for _, rank := range []int{activeReady, drainingReady} {
		for _, c := range b.byRank[rank] {
			if c.target == t && c.endpoint.is(healthy) && c.endpoint.good.Load() >= ns.epoch {
				return true
			}
		}
	}
	return false
}

// EndpointHealth returns what probes say of each address, for debugging.
func (p *Proxy) EndpointHealth() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := map[health]string{unknown: "unknown", healthy: "healthy", unhealthy: "unhealthy"}
	out := make(map[string]string, len(p.endpoints))
	for address, e := range p.endpoints {
		out[address] = names[health(e.health.Load())]
	}
	return out
}
