package virtual

import (
	"context"
	"iter"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// audience says who sees an object. The zero value is nobody; otherwise one field is
// set.
type audience struct {
	// everyone is all callers of the workspace.
	everyone bool
	// target is the one target with this key.
	target string
	// assigned is every target to which this namespace is assigned.
	assigned space
}

var (
	nobody   = audience{}
	everyone = audience{everyone: true}
)

// onlyTarget is the target with the given key.
func onlyTarget(key string) audience { return audience{target: key} }

// assignees are the targets to which the object's namespace is assigned.
func assignees(obj *unstructured.Unstructured) audience {
	return audience{assigned: space{cluster: logicalcluster.From(obj), namespace: obj.GetNamespace()}}
}

// listFunc is a consistent list of one namespace.
type listFunc func(ctx context.Context, s space) (*unstructured.UnstructuredList, error)

// hub spreads the changes of one resource over the open streams of a workspace.
type hub struct {
	// ctx ends all streams and the worker.
	ctx         context.Context
	resource    *resource
	informer    *informer.Informer[*unstructured.Unstructured]
	assignments *assignments
	list        listFunc

	mu       sync.Mutex
	groups   map[audience]map[logicalcluster.Key]*unstructured.Unstructured
	streams  map[*stream]bool
	byTarget map[string]map[*stream]bool
	// pending are grants that cannot be served yet, with the revision to reach.
	pending map[grant]uint64
	// settling is true while the worker of settle.go runs; moved wakes it.
	settling bool
	moved    chan struct{}
}

// newHub returns a hub that holds what its informer holds, once that has synced.
func newHub(ctx context.Context, res *resource, i *informer.Informer[*unstructured.Unstructured], a *assignments, list listFunc) *hub {
	return &hub{
		ctx:         ctx,
		resource:    res,
		informer:    i,
		assignments: a,
		list:        list,
		groups:      map[audience]map[logicalcluster.Key]*unstructured.Unstructured{},
		streams:     map[*stream]bool{},
		byTarget:    map[string]map[*stream]bool{},
		pending:     map[grant]uint64{},
		moved:       make(chan struct{}, 1),
	}
}

// start fills the hub and follows its sources.
func (h *hub) start() {
	h.informer.AddHandler(h.onEvent)
	h.assignments.attach(h)
}

func (h *hub) onEvent(e informer.Event[*unstructured.Unstructured]) {
	h.assignments.mu.RLock()
	defer h.assignments.mu.RUnlock()
	h.mu.Lock()
	defer h.mu.Unlock()

	before, after := nobody, nobody
	if !e.Added {
		before = h.resource.audience(e.Old)
	}
	if !e.Deleted {
		after = h.resource.audience(e.New)
	}
	h.regroupLocked(e.Key, before, after, e.New)

	changed, removed := &item{resource: h.resource, obj: e.New}, &item{resource: h.resource, obj: e.Old}
	for s := range h.watchingLocked(before) {
		if h.seesLocked(s, after) {
			s.sendLocked(burst{event: watch.Modified, item: changed})
			continue
		}
		// The old object, since what has become invisible is not shown.
		s.sendLocked(burst{event: watch.Deleted, item: removed})
	}
	for s := range h.watchingLocked(after) {
		if !h.seesLocked(s, before) {
			s.sendLocked(burst{event: watch.Added, item: changed})
		}
	}
	if h.settling {
		select {
		case h.moved <- struct{}{}:
		default:
		}
	}
}

func (h *hub) regroupLocked(key logicalcluster.Key, before, after audience, obj *unstructured.Unstructured) {
	if before != nobody && before != after {
		delete(h.groups[before], key)
		if len(h.groups[before]) == 0 {
			delete(h.groups, before)
		}
	}
	if after == nobody {
		return
	}
	if h.groups[after] == nil {
		h.groups[after] = map[logicalcluster.Key]*unstructured.Unstructured{}
	}
	h.groups[after][key] = obj
}

// watchingLocked iterates over the streams that see what a has for audience.
func (h *hub) watchingLocked(a audience) iter.Seq[*stream] {
	return func(yield func(*stream) bool) {
		var candidates []map[*stream]bool
		switch {
		case a == nobody:
			return
		case a.everyone:
			candidates = append(candidates, h.streams)
		case a.target != "":
			candidates = append(candidates, h.byTarget[a.target])
		default:
			for target := range h.assignments.targets[a.assigned] {
				candidates = append(candidates, h.byTarget[target])
			}
		}
		for _, streams := range candidates {
			for s := range streams {
				if h.seesLocked(s, a) && !yield(s) {
					return
				}
			}
		}
	}
}

// seesLocked reports whether s sees what has a for audience.
func (h *hub) seesLocked(s *stream, a audience) bool {
	if a.assigned == (space{}) {
		return a.everyone || a.target != "" && a.target == s.target
	}
	g := grant{target: s.target, space: a.assigned}
	_, pending := h.pending[g]
	return s.assigned && !pending && h.assignments.targets[g.space][g.target]
}

// open registers a stream; its queue begins with the state. assigned says whether it
// shows objects of assigned namespaces. Whoever opens a stream removes it.
func (h *hub) open(target string, assigned bool) *stream {
	h.assignments.mu.RLock()
	defer h.assignments.mu.RUnlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	s := newStream(target, assigned)
	h.streams[s] = true
	if h.byTarget[target] == nil {
		h.byTarget[target] = map[*stream]bool{}
	}
	h.byTarget[target][s] = true

	s.sendLocked(burst{event: watch.Added, objects: h.stateLocked(s)})
	h.beginLocked(s)
	h.settleLocked()
	return s
}

func (h *hub) remove(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.closeLocked()
	delete(h.streams, s)
	delete(h.byTarget[s.target], s)
	if len(h.byTarget[s.target]) == 0 {
		delete(h.byTarget, s.target)
	}
}

// stateLocked returns what s sees now, and notes in s what it has yet to wait for.
func (h *hub) stateLocked(s *stream) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	take := func(a audience) {
		for _, obj := range h.groups[a] {
			out = append(out, obj)
		}
	}
	take(everyone)
	if s.target != "" {
		take(onlyTarget(s.target))
	}
	if !s.assigned {
		return out
	}
	for sp := range h.assignments.spaces[s.target] {
		if _, pending := h.pending[grant{target: s.target, space: sp}]; pending {
			s.waiting[sp] = true
			continue
		}
		take(audience{assigned: sp})
	}
	return out
}

// beginLocked ends the initial state of s unless s waits for something.
func (h *hub) beginLocked(s *stream) {
	if len(s.waiting) == 0 && !s.begun {
		s.begun = true
		s.sendLocked(burst{event: watch.Bookmark, revision: h.informer.Revision()})
	}
}

// closeTarget ends all streams of a target, whose clients then come in anew.
func (h *hub) closeTarget(target string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.byTarget[target] {
		s.closeLocked()
	}
}
