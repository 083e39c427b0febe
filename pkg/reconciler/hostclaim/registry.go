package hostclaim

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// wish is what one Ingress names.
type wish struct {
	ingress logicalcluster.Key
	uid     types.UID
	created time.Time
	// hosts are in lower case, sorted, each once; "" stands for a rule without a host.
	hosts []string
}

// entry is what is known of one host.
type entry struct {
	// holder is empty while the holder of the wildcard above keeps others out.
	holder logicalcluster.Name
	wishes map[logicalcluster.Key]*wish
}

func (e *entry) wishedBy(cluster logicalcluster.Name) bool {
	for key := range e.wishes {
		if key.Cluster == cluster {
			return true
		}
	}
	return false
}

// registry knows who holds each host. It is not safe for concurrent use.
type registry struct {
	wishes map[logicalcluster.Key]*wish
	hosts  map[string]*entry
	// below has, by wildcard, the hosts that it covers, whether it exists or not.
	below map[string]map[string]bool
}

func newRegistry() *registry {
	return &registry{wishes: map[logicalcluster.Key]*wish{}, hosts: map[string]*entry{}, below: map[string]map[string]bool{}}
}

// wildcardOf returns the wildcard that covers a host, "" for none.
func wildcardOf(host string) string {
	if strings.HasPrefix(host, "*.") {
		return ""
	}
	_, parent, ok := strings.Cut(host, ".")
	if !ok {
		return ""
	}
	return "*." + parent
}

// holds reports whether a workspace holds a host.
func (r *registry) holds(cluster logicalcluster.Name, host string) bool {
	e := r.hosts[host]
	return e != nil && e.holder == cluster
}

// seed fills an empty registry. recorded says whether a workspace held a host for an
// Ingress when that was last written down.
func (r *registry) seed(wishes []*wish, recorded func(w *wish, host string) bool) {
	slices.SortFunc(wishes, older)
	all := map[string]bool{}
	for _, w := range wishes {
		r.add(w)
		for _, host := range w.hosts {
			all[host] = true
			if e := r.hosts[host]; e.holder == "" && recorded(w, host) {
				e.holder = w.ingress.Cluster
			}
		}
	}
	r.settle(all)
}

// put notes what an Ingress names now; nil hosts take it out. It returns the Ingresses of
// which a host was given to somebody.
func (r *registry) put(w *wish) map[logicalcluster.Key]bool {
	old := r.wishes[w.ingress]
	if old != nil && old.uid == w.uid && slices.Equal(old.hosts, w.hosts) {
		return nil
	}
	unsettled := map[string]bool{}
	if old != nil && old.uid != w.uid {
		r.remove(old, old.hosts, unsettled)
		old = nil
	}
	if old != nil {
		r.remove(old, slices.DeleteFunc(slices.Clone(old.hosts), func(h string) bool { return slices.Contains(w.hosts, h) }), unsettled)
	}
	if len(w.hosts) > 0 {
		r.add(w)
	}
	for _, host := range w.hosts {
		unsettled[host] = true
	}
	touched := map[logicalcluster.Key]bool{}
	for _, host := range r.settle(unsettled) {
		for key := range r.hosts[host].wishes {
			touched[key] = true
		}
	}
	return touched
}

func (r *registry) add(w *wish) {
	r.wishes[w.ingress] = w
	for _, host := range w.hosts {
		e := r.hosts[host]
		if e == nil {
			e = &entry{wishes: map[logicalcluster.Key]*wish{}}
			r.hosts[host] = e
		}
		e.wishes[w.ingress] = w
		if above := wildcardOf(host); above != "" {
			if r.below[above] == nil {
				r.below[above] = map[string]bool{}
			}
			r.below[above][host] = true
		}
	}
}

// remove takes hosts from what an Ingress names, and adds those that have become free to
// unsettled.
func (r *registry) remove(w *wish, hosts []string, unsettled map[string]bool) {
	delete(r.wishes, w.ingress)
	for _, host := range hosts {
		e := r.hosts[host]
		delete(e.wishes, w.ingress)
		freed := e.holder == w.ingress.Cluster && !e.wishedBy(e.holder)
		if freed {
			e.holder = ""
			unsettled[host] = true
			// What a wildcard kept back is free too.
			maps.Copy(unsettled, r.below[host])
		}
		if len(e.wishes) > 0 {
			continue
		}
		delete(r.hosts, host)
		above := wildcardOf(host)
		delete(r.below[above], host)
		if len(r.below[above]) == 0 {
			delete(r.below, above)
		}
	}
}

// settle gives those of the hosts that nobody holds to the oldest wish, and returns those
// that it has given.
func (r *registry) settle(hosts map[string]bool) []string {
	type candidate struct {
		*wish

		host string
	}
	var candidates []candidate
	for host := range hosts {
		e := r.hosts[host]
		if e == nil || e.holder != "" {
			continue
		}
		for _, w := range e.wishes {
			candidates = append(candidates, candidate{w, host})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int { return cmp.Or(older(a.wish, b.wish), cmp.Compare(a.host, b.host)) })
	var given []string
	for _, c := range candidates {
		e, above := r.hosts[c.host], r.hosts[wildcardOf(c.host)]
		keptBack := wildcardOf(c.host) != "" && above != nil && above.holder != "" && above.holder != c.ingress.Cluster
		if e.holder == "" && !keptBack {
			e.holder = c.ingress.Cluster
			given = append(given, c.host)
		}
	}
	return given
}

// older orders wishes by the age of their Ingresses, then uid.
func older(a, b *wish) int {
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.uid, b.uid), cmp.Compare(a.ingress.String(), b.ingress.String()))
}
