package table

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Update returns the table that follows prev (nil for none) when the given namespaces
// are as BuildNamespace made them, nil for those that are gone. It returns the keys that
// really changed, sorted; without any it returns prev itself. The new revision is larger
// than prev's and, where the clock allows, the time in milliseconds.
func Update(prev *Table, namespaces map[NamespaceKey]*Namespace, now time.Time) (*Table, []NamespaceKey) {
	if prev == nil {
		prev = &Table{}
	}
	next := &Table{
		Revision:   max(prev.Revision+1, now.UnixMilli()),
		Namespaces: maps.Clone(prev.Namespaces),
	}
	if next.Namespaces == nil {
		next.Namespaces = map[NamespaceKey]*Namespace{}
	}
	var changed []NamespaceKey
	for key, ns := range namespaces {
		old := prev.Namespaces[key]
		if equal(old, ns) {
			continue
		}
		changed = append(changed, key)
		if ns == nil {
			delete(next.Namespaces, key)
			continue
		}
		stamped := *ns
		stamped.Revision = next.Revision
		next.Namespaces[key] = &stamped
	}
	if len(changed) == 0 && prev.hosts != nil {
		return prev, nil
	}
	next.index(prev, changed)
	slices.SortFunc(changed, compareKeys)
	return next, changed
}

func equal(x, y *Namespace) bool {
	if x == nil || y == nil {
		return x == y
	}
	a, b := *x, *y
	a.Revision, b.Revision = 0, 0
	return reflect.DeepEqual(a, b)
}

func compareKeys(x, y NamespaceKey) int {
	return cmp.Or(cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Namespace, y.Namespace))
}

// claim is what one Ingress says of one host.
type claim struct {
	ns      *Namespace
	ingress *Ingress
	rules   *HostRules
}

// index makes the hosts: those of prev, except where namespaces changed, so that a change
// costs the same however many hosts there are.
func (t *Table) index(prev *Table, changed []NamespaceKey) {
	t.hosts = maps.Clone(prev.hosts)
	if t.hosts == nil {
		t.hosts = map[string]*host{}
	}
	isChanged := make(map[NamespaceKey]bool, len(changed))
	// affected hosts get the claims that they had from others, and the new ones.
	affected := map[string][]claim{}
	for _, key := range changed {
		isChanged[key] = true
		for _, c := range claimsOf(prev.Namespaces[key]) {
			affected[c.rules.Host] = nil
		}
	}
	for _, key := range changed {
		for _, c := range claimsOf(t.Namespaces[key]) {
			affected[c.rules.Host] = append(affected[c.rules.Host], c)
		}
	}
	for name, claims := range affected {
		var holder logicalcluster.Name
		if old := prev.hosts[name]; old != nil {
			holder = old.holder
			for _, c := range old.claims {
				if !isChanged[c.ns.NamespaceKey] {
					claims = append(claims, c)
				}
			}
		}
		if len(claims) == 0 {
			delete(t.hosts, name)
			continue
		}
		t.hosts[name] = newHost(holder, claims)
	}
}

func claimsOf(ns *Namespace) []claim {
	if ns == nil {
		return nil
	}
	var out []claim
	for i := range ns.Ingresses {
		for h := range ns.Ingresses[i].Hosts {
			out = append(out, claim{ns, &ns.Ingresses[i], &ns.Ingresses[i].Hosts[h]})
		}
	}
	return out
}

// newHost makes a host from all claims to it. holder is the workspace that held it.
func newHost(holder logicalcluster.Name, claims []claim) *host {
	slices.SortFunc(claims, func(x, y claim) int {
		return cmp.Or(x.ingress.Created.Compare(y.ingress.Created), cmp.Compare(x.ingress.UID, y.ingress.UID), compareKeys(x.ns.NamespaceKey, y.ns.NamespaceKey))
	})
	if !slices.ContainsFunc(claims, func(c claim) bool { return c.ns.Cluster == holder }) {
		holder = claims[0].ns.Cluster
	}
	h := &host{holder: holder, claims: claims, exact: map[string]Route{}, prefix: map[string]Route{}}
	for _, c := range claims {
		if c.ns.Cluster != holder {
			continue
		}
		for _, path := range c.rules.Paths {
			m, key := h.prefix, prefixKey(path.Path)
			if path.Exact {
				m, key = h.exact, path.Path
			}
			if _, taken := m[key]; !taken {
				m[key] = Route{c.ns, path.Backend}
			}
		}
		if c.rules.Default != nil && h.fallback == nil {
			h.fallback = &Route{c.ns, *c.rules.Default}
		}
	}
	return h
}
