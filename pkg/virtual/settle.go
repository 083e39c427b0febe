package virtual

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

const (
	// settleRecheck is how often the worker looks again while an informer is behind and
	// quiet: bookmarks move its revision without an event.
	settleRecheck = 50 * time.Millisecond
	// settleRetry is the pause after a failed list.
	settleRetry = 200 * time.Millisecond
)

// grant is called by assignments, under its lock, for each new grant.
func (h *hub) grant(g grant, revision uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.informer.Revision() < revision {
		h.pending[g] = revision
		h.settleLocked()
		return
	}
	h.serveLocked(g)
}

// revoke is called by assignments, under its lock, for each grant that is gone.
func (h *hub) revoke(g grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, pending := h.pending[g]
	delete(h.pending, g)
	for s := range h.byTarget[g.target] {
		if !s.assigned {
			continue
		}
		if !pending {
			h.sendGroupLocked(s, watch.Deleted, g.space)
		}
		delete(s.waiting, g.space)
		h.beginLocked(s)
	}
}

// serveLocked shows the objects of a grant to the target's streams.
func (h *hub) serveLocked(g grant) {
	delete(h.pending, g)
	for s := range h.byTarget[g.target] {
		if !s.assigned {
			continue
		}
		h.sendGroupLocked(s, watch.Added, g.space)
		delete(s.waiting, g.space)
		h.beginLocked(s)
	}
}

func (h *hub) sendGroupLocked(s *stream, event watch.EventType, sp space) {
	group := h.groups[audience{assigned: sp}]
	if len(group) == 0 {
		return
	}
	objects := make([]*unstructured.Unstructured, 0, len(group))
	for _, obj := range group {
		objects = append(objects, obj)
	}
	s.sendLocked(burst{event: event, objects: objects})
}

// settleLocked starts the worker if it is needed and does not run.
func (h *hub) settleLocked() {
	if _, _, ok := h.nextLocked(); ok && !h.settling {
		h.settling = true
		go h.settle()
	}
}

// nextLocked picks one pending grant that a stream waits for. The order is the map's,
// so that one which cannot be served does not hold up the others.
func (h *hub) nextLocked() (grant, uint64, bool) {
	for g, revision := range h.pending {
		for s := range h.byTarget[g.target] {
			if s.assigned {
				return g, revision, true
			}
		}
	}
	return grant{}, 0, false
}

// settle serves pending grants as their revisions are reached. It ends when none is
// left.
func (h *hub) settle() {
	for {
		h.mu.Lock()
		g, revision, ok := h.nextLocked()
		if !ok || h.ctx.Err() != nil {
			h.settling = false
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()

		pause := settleRecheck
		reached, err := h.reached(g, revision)
		if err != nil {
			klog.FromContext(h.ctx).Error(err, "Cannot tell yet whether an assignment can be served", "resource", h.resource.gvr, "cluster", g.space.cluster, "namespace", g.space.namespace)
			pause = settleRetry
		}
		if reached {
			h.settled(g, revision)
			continue
		}
		select {
		case <-h.ctx.Done():
		case <-h.moved:
		case <-time.After(pause):
		}
	}
}

// settled serves g unless it is gone, or gone and back, meanwhile.
func (h *hub) settled(g grant, revision uint64) {
	h.assignments.mu.RLock()
	defer h.assignments.mu.RUnlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pending[g] == revision {
		h.serveLocked(g)
	}
}

// reached reports whether the hub holds all that was written to the space before
// revision.
func (h *hub) reached(g grant, revision uint64) (bool, error) {
	if h.informer.Revision() >= revision {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(h.ctx, 10*time.Second)
	defer cancel()
	list, err := h.list(ctx, g.space)
	if err != nil {
		return false, fmt.Errorf("cannot list %s of namespace %q in cluster %q: %w", h.resource.gvr.Resource, g.space.namespace, g.space.cluster, err)
	}
	return h.covers(g.space, list), nil
}

// covers reports whether the hub holds of a space what list holds, or newer. It says no
// where an object of the list was deleted since; the next list says yes.
func (h *hub) covers(sp space, list *unstructured.UnstructuredList) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := audience{assigned: sp}
	group := h.groups[a]
	listed := map[logicalcluster.Key]bool{}
	for n := range list.Items {
		obj := &list.Items[n]
		if h.resource.audience(obj) != a {
			continue
		}
		key := logicalcluster.KeyOf(obj)
		listed[key] = true
		held, ok := group[key]
		if !ok || revisionOf(held) < revisionOf(obj) {
			return false
		}
	}
	revision := revisionOf(&unstructured.Unstructured{Object: list.Object})
	for key, held := range group {
		if !listed[key] && revisionOf(held) <= revision {
			return false
		}
	}
	return true
}
