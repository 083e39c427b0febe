package virtual

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAssignmentWaitsForOlderObjects holds the objects' events back: an Assignment that
// is newer than they must not be served without them, neither to an open stream nor to
// a new one before its bookmark.
func TestAssignmentWaitsForOlderObjects(t *testing.T) {
	w := newWorld(t)
	east := w.register("east")
	open := w.stream(east.base + configMaps).sync()
	w.hold("configmaps")
	w.put("configmaps", obj("ConfigMap", "c1", "ns", "a"))
	w.put("configmaps", obj("ConfigMap", "c1", "ns", "b"))
	w.put("assignments", assignment("c1", "ns", east))
	w.settle() // the server knows of the assignment now

	fresh := make(chan *client)
	go func() { fresh <- w.stream(east.base + configMaps).sync() }()
	// The worker asks storage until the informer has come as far.
	w.waitForLists("configmaps", 4)
	select {
	case <-fresh:
		t.Fatal("a stream began without objects that are older than its assignment")
	default:
	}
	w.release("configmaps")
	if diff := cmp.Diff([]string{"c1|ns/a", "c1|ns/b"}, (<-fresh).keys()); diff != "" {
		t.Errorf("initial state (-want +got):\n%s", diff)
	}
	open.shows("c1|ns/a", "c1|ns/b")
}

// waitForLists returns when the resource was listed n times.
func (w *world) waitForLists(resource string, n int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d lists of %s", n, resource), func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.lists[resource] >= n
	})
}

// TestQuietResource has an Assignment newer than anything the resource's informer will
// ever see: a list settles it.
func TestQuietResource(t *testing.T) {
	w := newWorld(t)
	east := w.register("east")
	w.put("configmaps", obj("ConfigMap", "c1", "ns", "a"))
	open := w.stream(east.base + configMaps).sync()
	w.put("assignments", assignment("c1", "ns", east))
	open.shows("c1|ns/a")
	w.put("assignments", assignment("c1", "empty", east))
	w.stream(east.base + configMaps).sync().shows("c1|ns/a")
}

// TestDeletedAfterAssignment deletes an object while its events are held back.
func TestDeletedAfterAssignment(t *testing.T) {
	w := newWorld(t)
	east := w.register("east")
	open := w.stream(east.base + configMaps).sync()
	w.hold("configmaps")
	gone := w.put("configmaps", obj("ConfigMap", "c1", "ns", "gone"))
	w.put("configmaps", obj("ConfigMap", "c1", "ns", "stays"))
	w.put("assignments", assignment("c1", "ns", east))
	w.remove("configmaps", gone)
	w.settle()
	w.waitForLists("configmaps", 3)
	w.release("configmaps")
	open.shows("c1|ns/stays")
}

func TestDeletedBeforeAssignment(t *testing.T) {
	w := newWorld(t)
	east := w.register("east")
	gone := w.put("configmaps", obj("ConfigMap", "c1", "ns", "gone"))
	open := w.stream(east.base + configMaps).sync()
	w.hold("configmaps")
	w.remove("configmaps", gone)
	w.put("assignments", assignment("c1", "ns", east))
	w.settle()
	w.waitForLists("configmaps", 3)
	w.release("configmaps")
	w.put("configmaps", obj("ConfigMap", "c1", "ns", "b"))
	open.shows("c1|ns/b")
	if diff := cmp.Diff([]string{"BOOKMARK", "ADDED c1|ns/b"}, open.events); diff != "" {
		t.Errorf("what was deleted before the assignment was shown (-want +got):\n%s", diff)
	}
}
