package proxy

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/13eedeaf/kcp/pkg/gateway/table"
)

type nsKey = table.NamespaceKey

// target counts what is in flight to one target on behalf of one namespace.
type target struct {
	inFlight atomic.Int64
	// draining: somebody waits for inFlight to become zero.
	draining atomic.Bool
}

type targetKey struct {
	nsKey
	target string
}

// runtime is a table in force. It is never changed once in force.
type runtime struct {
	table      *table.Table
	namespaces map[*table.Namespace]*namespace
}

// namespace is a table.Namespace with the state of its endpoints and targets.
type namespace struct {
	data     *table.Namespace
	epoch    int64
	targets  []*target
	backends []*backend
}

// candidate is an endpoint to choose.
type candidate struct {
	endpoint *endpoint
	target   *target
}

// The static ranks of candidates; see the package's doc.
const (
	activeReady = iota
	drainingReady
	activeTerminating
	drainingTerminating
	ranks
)

type backend struct {
	byRank [ranks][]candidate
}

// pick chooses a candidate that is not among tried.
func (b *backend) pick(tried []*endpoint) (candidate, bool) {
	for rank := range b.byRank {
		for _, h := range []health{healthy, unknown} {
			if c, ok := pickFrom(b.byRank[rank], h, tried); ok {
				return c, true
			}
		}
	}
	for _, rank := range []int{activeReady, drainingReady} {
		if c, ok := pickFrom(b.byRank[rank], unhealthy, tried); ok {
			return c, true
		}
	}
	return candidate{}, false
}

// pickFrom returns the less busy of the first two that fit, beginning anywhere.
func pickFrom(list []candidate, h health, tried []*endpoint) (candidate, bool) {
	var best candidate
	n := len(list)
	if n == 0 {
		return best, false
	}
	start := rand.IntN(n)
	for i := range n {
		c := list[(start+i)%n]
		if !c.endpoint.is(h) || slices.Contains(tried, c.endpoint) {
			continue
		}
		if best.endpoint == nil {
			best = c
			continue
		}
		if c.endpoint.inFlight.Load() < best.endpoint.inFlight.Load() {
			best = c
		}
		break
	}
	return best, best.endpoint != nil
}

// fallsBackTo reports whether a request for b would now go to t although t is draining.
func (b *backend) fallsBackTo(t *target) bool {
	has := func(list []candidate, of *target, fits ...health) bool {
		return slices.ContainsFunc(list, func(c candidate) bool {
			return (of == nil || c.target == of) && slices.Contains(fits, health(c.endpoint.health.Load()))
		})
	}
	switch {
	case has(b.byRank[activeReady], nil, healthy, unknown):
		return false
	case has(b.byRank[drainingReady], nil, healthy, unknown):
		return has(b.byRank[drainingReady], t, healthy, unknown)
	case has(b.byRank[activeTerminating], nil, healthy, unknown):
		return false
	default:
		return has(b.byRank[drainingTerminating], t, healthy, unknown)
	}
}

// Swap puts a table in force. Endpoints of namespaces that changed are probed at once.
func (p *Proxy) Swap(t *table.Table) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.current.Load()
	epoch := p.epoch.Load() + 1
	next := &runtime{table: t, namespaces: make(map[*table.Namespace]*namespace, len(t.Namespaces))}
	var fresh []*namespace
	for _, data := range t.Namespaces {
		if old != nil && old.namespaces[data] != nil {
			next.namespaces[data] = old.namespaces[data]
			continue
		}
		ns := p.compileLocked(data, epoch)
		next.namespaces[data] = ns
		fresh = append(fresh, ns)
	}
	p.current.Store(next)
	p.epoch.Store(epoch)
	for _, ns := range fresh {
		ns.endpoints(func(e *endpoint) {
			e.want.Store(epoch)
			if e.cancel != nil {
				e.probeNow()
				return
			}
			var ctx context.Context
			ctx, e.cancel = context.WithCancel(p.ctx)
			go p.probeLoop(ctx, e)
		})
	}
	if old != nil {
		for data, ns := range old.namespaces {
			if next.namespaces[data] == nil {
				p.releaseLocked(ns)
			}
		}
	}
	p.sweepLocked(t)
	p.metrics.table(t, len(p.endpoints))
}

// endpoints calls f for each endpoint, once for every backend that names it.
func (ns *namespace) endpoints(f func(*endpoint)) {
	for _, b := range ns.backends {
		for _, list := range b.byRank {
			for _, c := range list {
				f(c.endpoint)
			}
		}
	}
}

func (p *Proxy) compileLocked(data *table.Namespace, epoch int64) *namespace {
	ns := &namespace{data: data, epoch: epoch}
	targets := make(map[string]*target, len(data.Targets))
	draining := make(map[string]bool, len(data.Targets))
	for _, t := range data.Targets {
		key := targetKey{data.NamespaceKey, t.Key}
		state := p.targets[key]
		if state == nil {
			state = &target{}
			p.targets[key] = state
		}
		state.draining.Store(t.Draining)
		targets[t.Key], draining[t.Key] = state, t.Draining
		ns.targets = append(ns.targets, state)
	}
	for _, b := range data.Backends {
		out := &backend{}
		for _, e := range b.Endpoints {
			rank, ok := rankOf(e.State, draining[e.Target])
			if !ok {
				continue
			}
			c := candidate{endpoint: p.endpointLocked(e.Address, data.NamespaceKey), target: targets[e.Target]}
			out.byRank[rank] = append(out.byRank[rank], c)
		}
		ns.backends = append(ns.backends, out)
	}
	return ns
}

func rankOf(state table.EndpointState, draining bool) (int, bool) {
	switch {
	case state == table.Ready && !draining:
		return activeReady, true
	case state == table.Ready:
		return drainingReady, true
	case state == table.Terminating && !draining:
		return activeTerminating, true
	case state == table.Terminating:
		return drainingTerminating, true
	default:
		return 0, false
	}
}

// endpointLocked returns the state of an address and counts one more user. Swap starts
// the probes of new ones, once the table is in force.
func (p *Proxy) endpointLocked(address string, user nsKey) *endpoint {
	e := p.endpoints[address]
	if e == nil {
		e = &endpoint{address: address, kick: make(chan struct{}, 1), users: map[nsKey]int{}}
		p.endpoints[address] = e
	}
	e.users[user]++
	return e
}

// releaseLocked drops the endpoints that only the old version of a namespace used, and
// has its targets looked at.
func (p *Proxy) releaseLocked(ns *namespace) {
	key := ns.data.NamespaceKey
	for _, t := range ns.data.Targets {
		p.leftover[targetKey{key, t.Key}] = true
	}
	ns.endpoints(func(e *endpoint) {
		if e.users[key]--; e.users[key] == 0 {
			delete(e.users, key)
		}
		if len(e.users) == 0 {
			e.cancel()
			delete(p.endpoints, e.address)
		}
	})
}

// sweepLocked drops counters that no assignment and no request needs. A request that is
// about to count on one of them chooses again, as the table changed.
func (p *Proxy) sweepLocked(t *table.Table) {
	for key := range p.leftover {
		ns := t.Namespaces[key.nsKey]
		assigned := ns != nil && slices.ContainsFunc(ns.Targets, func(a table.Target) bool { return a.Key == key.target })
		if !assigned && p.targets[key].inFlight.Load() > 0 {
			continue
		}
		delete(p.leftover, key)
		if !assigned {
			delete(p.targets, key)
		}
	}
}

// notifyUsers tells whoever watches that the namespaces of an endpoint look different.
func (p *Proxy) notifyUsers(e *endpoint) {
	p.mu.Lock()
	users := make([]nsKey, 0, len(e.users))
	for key := range e.users {
		users = append(users, key)
	}
	p.mu.Unlock()
	for _, key := range users {
		p.options.OnChange(key)
	}
}
