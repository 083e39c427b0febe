package hostclaim

import (
	"cmp"
	"maps"
	"slices"
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

// entry is what is known of one host that Ingresses name.
type entry struct {
	// holder is empty only while the host waits for settle.
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
}

func newRegistry() *registry {
	return &registry{wishes: map[logicalcluster.Key]*wish{}, hosts: map[string]*entry{}}
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
	}
}

// remove takes hosts from what an Ingress names, and adds those that have become free to
// unsettled.
func (r *registry) remove(w *wish, hosts []string, unsettled map[string]bool) {
	delete(r.wishes, w.ingress)
	for _, host := range hosts {
		e := r.hosts[host]
		delete(e.wishes, w.ingress)
		if e.holder == w.ingress.Cluster && !e.wishedBy(e.holder) {
			e.holder = ""
			unsettled[host] = true
		}
		if len(e.wishes) == 0 {
			delete(r.hosts, host)
		}
	}
}

// settle gives those of the hosts that nobody holds to the oldest wish, and returns those
// that it has given.
func (r *registry) settle(hosts map[string]bool) []string {
	var given []string
	for host := range hosts {
		e := r.hosts[host]
		if e == nil || e.holder != "" {
			continue
		}
		e.holder = slices.MinFunc(slices.Collect(maps.Values(e.wishes)), older).ingress.Cluster
		given = append(given, host)
	}
	return given
}

// older orders wishes by the age of their Ingresses, then uid.
func older(a, b *wish) int {
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.uid, b.uid), cmp.Compare(a.ingress.String(), b.ingress.String()))
}
