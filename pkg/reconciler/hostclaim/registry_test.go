package hostclaim

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// ask returns what an Ingress of a workspace names, created that many minutes after the
// epoch. Its uid is its name.
func ask(cluster logicalcluster.Name, name string, minutes int, hosts ...string) *wish {
	slices.Sort(hosts)
	return &wish{
		ingress: logicalcluster.Key{Cluster: cluster, Namespace: "n", Name: name}, uid: types.UID(name),
		created: time.Unix(int64(minutes)*60, 0), hosts: hosts,
	}
}

// gone is an Ingress that is not there any more.
func gone(cluster logicalcluster.Name, name string) *wish { return ask(cluster, name, 0) }

func (r *registry) holders() map[string]logicalcluster.Name {
	out := map[string]logicalcluster.Name{}
	for host, e := range r.hosts {
		out[host] = e.holder
	}
	return out
}

const (
	host  = "h.example.com"
	other = "o.example.com"
	wild  = "*.example.com"
)

func TestRegistry(t *testing.T) {
	type holders = map[string]logicalcluster.Name
	for name, tc := range map[string]struct {
		// seed is there at the start, recorded are the holders written down then, and
		// steps come one after the other.
		seed     []*wish
		recorded holders
		steps    []*wish
		want     holders
		// wantTouched are the Ingresses that the last step has looked at.
		wantTouched []string
	}{
		"the oldest": {
			seed: []*wish{ask("a", "a1", 2, host), ask("b", "b1", 1, host), ask("c", "c1", 3, host)},
			want: holders{host: "b"},
		},
		"of one age, the first by uid": {
			seed: []*wish{ask("a", "z", 1, host), ask("b", "y", 1, host)},
			want: holders{host: "b"},
		},
		"what was written down counts more than age": {
			seed:     []*wish{ask("a", "a1", 2, host), ask("b", "b1", 1, host)},
			recorded: holders{host: "a"},
			want:     holders{host: "a"},
		},
		"what was written down of a host that is not named any more": {
			seed:     []*wish{ask("a", "a1", 1, other), ask("b", "b1", 2, host)},
			recorded: holders{host: "a"},
			want:     holders{host: "b", other: "a"},
		},
		"an older Ingress that is edited takes nothing over": {
			seed:        []*wish{ask("a", "a1", 2, host), ask("b", "b1", 1, other)},
			steps:       []*wish{ask("b", "b1", 1, host)},
			want:        holders{host: "a"},
			wantTouched: []string{},
		},
		"the holder lets go: the oldest of those who wait": {
			seed:        []*wish{ask("a", "a1", 1, host), ask("b", "b1", 3, host), ask("c", "c1", 2, host)},
			steps:       []*wish{gone("a", "a1")},
			want:        holders{host: "c"},
			wantTouched: []string{"b1", "c1"},
		},
		"a workspace keeps it while any of its Ingresses names it": {
			seed:        []*wish{ask("a", "a1", 1, host), ask("b", "b1", 2, host)},
			steps:       []*wish{ask("a", "a2", 3, host), gone("a", "a1")},
			want:        holders{host: "a"},
			wantTouched: []string{},
		},
		"a recreated Ingress waits behind others": {
			seed:        []*wish{ask("a", "a1", 1, host), ask("b", "b1", 2, host)},
			steps:       []*wish{{ingress: ask("a", "a1", 0).ingress, uid: "new", created: time.Unix(300, 0), hosts: []string{host}}},
			want:        holders{host: "b"},
			wantTouched: []string{"a1", "b1"},
		},
		"nobody is left": {
			seed:        []*wish{ask("a", "a1", 1, host, wild)},
			steps:       []*wish{gone("a", "a1")},
			want:        holders{},
			wantTouched: []string{},
		},
		"a wildcard takes nothing from who names a host": {
			seed:        []*wish{ask("b", "b1", 2, host)},
			steps:       []*wish{ask("a", "a1", 1, wild)},
			want:        holders{host: "b", wild: "a"},
			wantTouched: []string{"a1"},
		},
		"a wildcard keeps nobody from a host below it": {
			seed:        []*wish{ask("a", "a1", 1, wild, "*.com")},
			steps:       []*wish{ask("b", "b1", 2, host, "example.com", "deep.h.example.com"), ask("c", "c1", 3, host, other)},
			want:        holders{wild: "a", "*.com": "a", host: "b", "example.com": "b", "deep.h.example.com": "b", other: "c"},
			wantTouched: []string{"c1"},
		},
		"nor does its holder get one before others": {
			seed:        []*wish{ask("a", "a1", 1, wild), ask("b", "b1", 2, host)},
			steps:       []*wish{ask("a", "a2", 3, host)},
			want:        holders{wild: "a", host: "b"},
			wantTouched: []string{},
		},
		"a wildcard is held like any host": {
			seed:        []*wish{ask("a", "a1", 2, wild), ask("b", "b1", 3, wild, host), ask("d", "d1", 4, wild)},
			steps:       []*wish{ask("c", "c1", 1, wild), gone("c", "c1"), gone("a", "a1")},
			want:        holders{wild: "b", host: "b"},
			wantTouched: []string{"b1", "d1"},
		},
		"a host that was kept back when that was written down": {
			seed:     []*wish{ask("a", "a1", 1, wild), ask("b", "b1", 2, host)},
			recorded: holders{wild: "a"},
			want:     holders{wild: "a", host: "b"},
		},
		"a wildcard below a wildcard is a host of its own": {
			seed: []*wish{ask("a", "a1", 1, wild), ask("b", "b1", 2, "*.h.example.com")},
			want: holders{wild: "a", "*.h.example.com": "b"},
		},
		"a rule without a host holds back nothing": {
			seed: []*wish{ask("a", "a1", 1, ""), ask("b", "b1", 2, host, "localhost"), ask("c", "c1", 3, "")},
			want: holders{"": "a", host: "b", "localhost": "b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry()
			r.seed(tc.seed, func(w *wish, host string) bool { return tc.recorded[host] == w.ingress.Cluster })
			var touched map[logicalcluster.Key]bool
			for _, w := range tc.steps {
				touched = r.put(w)
			}
			if diff := cmp.Diff(tc.want, r.holders()); diff != "" {
				t.Errorf("holders (-want +got):\n%s", diff)
			}
			if tc.wantTouched != nil {
				got := []string{}
				for key := range touched {
					got = append(got, key.Name)
				}
				slices.Sort(got)
				if diff := cmp.Diff(tc.wantTouched, got); diff != "" {
					t.Errorf("looked at (-want +got):\n%s", diff)
				}
			}
			// Whoever starts now, from what was written down, decides the same.
			again := newRegistry()
			again.seed(slices.Collect(maps.Values(r.wishes)), func(w *wish, host string) bool { return r.holds(w.ingress.Cluster, host) })
			if diff := cmp.Diff(r.holders(), again.holders()); diff != "" {
				t.Errorf("holders after a restart (-before +after):\n%s", diff)
			}
			// Nothing is left behind.
			for _, w := range slices.Collect(maps.Values(r.wishes)) {
				r.put(&wish{ingress: w.ingress})
			}
			if len(r.hosts)+len(r.wishes) > 0 {
				t.Errorf("with no Ingress left: %v", r)
			}
		})
	}
}

func TestSayTaken(t *testing.T) {
	got := sayTaken([]string{"", "a.example.com", "b.example.com", "c.example.com", "d.example.com", "e.example.com", "f.example.com"})
	want := `Not served here, since it is already in use elsewhere: a rule without a host, "a.example.com", "b.example.com", "c.example.com", "d.example.com" and 2 more. Choose another host; should this one become free, it is served here by itself.`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
