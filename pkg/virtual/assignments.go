package virtual

import (
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// space is a namespace of a logical cluster.
type space struct {
	cluster   logicalcluster.Name
	namespace string
}

// grant says that a target has a space: an Assignment exists, be it on its way out.
type grant struct {
	target string
	space  space
}

// assignments holds all grants and tells the hubs of changes.
type assignments struct {
	informer *informer.Informer[*unstructured.Unstructured]

	mu sync.RWMutex
	// spaces has, by target and space, the revision at which the grant was first seen.
	spaces  map[string]map[space]uint64
	targets map[space]map[string]bool
	hubs    []*hub
}

func newAssignments(i *informer.Informer[*unstructured.Unstructured]) *assignments {
	a := &assignments{informer: i, spaces: map[string]map[space]uint64{}, targets: map[space]map[string]bool{}}
	i.AddHandler(a.onEvent)
	return a
}

// grantOf returns what an Assignment grants. One whose name is not its target's key is
// malformed and grants nothing; so there is one per target and space.
func grantOf(obj *unstructured.Unstructured) (grant, bool) {
	if obj == nil {
		return grant{}, false
	}
	target := targetOfAssignment(obj)
	if target == "" || target != obj.GetName() {
		return grant{}, false
	}
	return grant{target: target, space: space{cluster: logicalcluster.From(obj), namespace: obj.GetNamespace()}}, true
}

func targetOfAssignment(obj *unstructured.Unstructured) string {
	target, _, _ := unstructured.NestedString(obj.Object, "spec", "target")
	return target
}

func (a *assignments) onEvent(e informer.Event[*unstructured.Unstructured]) {
	before, had := grantOf(e.Old)
	after, has := grantOf(e.New)
	if had == has && before == after {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if had {
		a.removeLocked(before)
	}
	if has {
		a.addLocked(after, revisionOf(e.New))
	}
}

func (a *assignments) addLocked(g grant, revision uint64) {
	if a.spaces[g.target] == nil {
		a.spaces[g.target] = map[space]uint64{}
	}
	a.spaces[g.target][g.space] = revision
	if a.targets[g.space] == nil {
		a.targets[g.space] = map[string]bool{}
	}
	a.targets[g.space][g.target] = true
	for _, h := range a.hubs {
		h.grant(g, revision)
	}
}

func (a *assignments) removeLocked(g grant) {
	delete(a.spaces[g.target], g.space)
	if len(a.spaces[g.target]) == 0 {
		delete(a.spaces, g.target)
	}
	delete(a.targets[g.space], g.target)
	if len(a.targets[g.space]) == 0 {
		delete(a.targets, g.space)
	}
	for _, h := range a.hubs {
		h.revoke(g)
	}
}

// attach tells h of all grants, from now on and so far.
func (a *assignments) attach(h *hub) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hubs = append(a.hubs, h)
	for target, spaces := range a.spaces {
		for s, revision := range spaces {
			h.grant(grant{target, s}, revision)
		}
	}
}

// has reports whether g stands.
func (a *assignments) has(g grant) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.targets[g.space][g.target]
}

// revisionOf returns the revision of the storage at which obj was written; 0 if it does
// not say.
func revisionOf(obj *unstructured.Unstructured) uint64 {
	// Storage writes decimal numbers; anything else never is an object of the server.
	revision, _ := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	return revision
}
