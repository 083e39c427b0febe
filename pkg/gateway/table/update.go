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
	next.index(prev.holders())
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

func (t *Table) holders() map[string]logicalcluster.Name {
	out := make(map[string]logicalcluster.Name, len(t.hosts))
	for name, h := range t.hosts {
		out[name] = h.holder
	}
	return out
}

// claim is what one Ingress says of one host.
type claim struct {
	ns      *Namespace
	ingress *Ingress
	rules   *HostRules
}

// index makes the hosts from the namespaces. holders are the workspaces that held them.
func (t *Table) index(holders map[string]logicalcluster.Name) {
	claims := map[string][]claim{}
	for _, ns := range t.Namespaces {
		for i := range ns.Ingresses {
			for h := range ns.Ingresses[i].Hosts {
				rules := &ns.Ingresses[i].Hosts[h]
				claims[rules.Host] = append(claims[rules.Host], claim{ns, &ns.Ingresses[i], rules})
			}
		}
	}
	t.hosts = make(map[string]*host, len(claims))
	for name, all := range claims {
		slices.SortFunc(all, func(x, y claim) int {
			return cmp.Or(x.ingress.Created.Compare(y.ingress.Created), cmp.Compare(x.ingress.UID, y.ingress.UID), compareKeys(x.ns.NamespaceKey, y.ns.NamespaceKey))
		})
		holder := all[0].ns.Cluster
		if held, ok := holders[name]; ok && slices.ContainsFunc(all, func(c claim) bool { return c.ns.Cluster == held }) {
			holder = held
		}
		t.hosts[name] = newHost(holder, all)
	}
}

func newHost(holder logicalcluster.Name, claims []claim) *host {
	h := &host{holder: holder, exact: map[string]Route{}, prefix: map[string]Route{}}
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
