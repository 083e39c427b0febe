package syncer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/tunnel"
	"github.com/13eedeaf/kcp/pkg/version"
)

// fakeVW serves a syncer's virtual workspace from memory: streams that begin with the
// whole state, and single objects. Tests break it on purpose.
type fakeVW struct {
	server *httptest.Server
	ctx    context.Context

	mu       sync.Mutex
	revision int
	objects  map[string]map[string]*unstructured.Unstructured
	streams  map[*fakeStream]bool
	target   *unstructured.Unstructured
	// requests counts requests for single objects, by "METHOD resource".
	requests map[string]int
	// refused says which status updates are invalid.
	refused func(obj *unstructured.Unstructured) bool
	// retired makes the server say that the sync target does not exist any more.
	retired bool
	// peer is what the server tells of itself; refusal, when set, is why it refuses syncers
	// for their version.
	peer    version.Peer
	refusal string
	// tunnels are what the syncer opens at /tunnel.
	tunnels tunnel.Tunnels
	// down makes every request fail, hidden leaves objects out of streams.
	down   bool
	hidden func(resource string, obj *unstructured.Unstructured) bool
}

type fakeStream struct {
	resource string
	events   chan watch.Event
}

func newFakeVW(t *testing.T, target *unstructured.Unstructured) *fakeVW {
	t.Helper()
	f := &fakeVW{
		ctx:      t.Context(),
		objects:  map[string]map[string]*unstructured.Unstructured{},
		streams:  map[*fakeStream]bool{},
		requests: map[string]int{},
		target:   target,
		peer:     version.Self(),
	}
	f.server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.setDown(true)
		f.server.Close()
	})
	return f
}

// setDown ends all streams and refuses requests, or serves again.
func (f *fakeVW) setDown(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
	f.cut()
	f.tunnels.Close(f.target.GetName())
}

// cut ends all streams.
func (f *fakeVW) cut() {
	for s := range f.streams {
		delete(f.streams, s)
		close(s.events)
	}
}

// hide leaves objects out of streams, as one with a hole would, and ends the streams.
func (f *fakeVW) hide(hidden func(resource string, obj *unstructured.Unstructured) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hidden = hidden
	f.cut()
}

func storeKey(cluster, namespace, name string) string { return cluster + "|" + namespace + "/" + name }

// put creates or updates an object as its author would: a changed spec is a new
// generation.
func (f *fakeVW) put(resource string, obj *unstructured.Unstructured) *unstructured.Unstructured {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.putLocked(resource, obj, false)
}

func (f *fakeVW) putLocked(resource string, obj *unstructured.Unstructured, status bool) *unstructured.Unstructured {
	obj = obj.DeepCopy()
	key := storeKey(string(logicalcluster.From(obj)), obj.GetNamespace(), obj.GetName())
	f.revision++
	obj.SetResourceVersion(strconv.Itoa(f.revision))
	event := watch.Added
	obj.SetGeneration(1)
	if f.objects[resource] == nil {
		f.objects[resource] = map[string]*unstructured.Unstructured{}
	}
	if old, ok := f.objects[resource][key]; ok {
		event = watch.Modified
		obj.SetUID(old.GetUID())
		obj.SetGeneration(old.GetGeneration())
		if status {
			obj.Object["spec"] = old.Object["spec"]
		} else if !reflect.DeepEqual(old.Object["spec"], obj.Object["spec"]) {
			obj.SetGeneration(old.GetGeneration() + 1)
		}
	} else if obj.GetUID() == "" {
		obj.SetUID(uuid.NewUUID())
	}
	f.objects[resource][key] = obj
	if obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 {
		f.removeLocked(resource, key)
		return obj
	}
	f.send(resource, event, obj)
	return obj
}

// remove deletes an object, if no finalizer holds it.
func (f *fakeVW) remove(resource, cluster, namespace, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deleteLocked(resource, storeKey(cluster, namespace, name))
}

func (f *fakeVW) deleteLocked(resource, key string) {
	obj, ok := f.objects[resource][key]
	if !ok {
		return
	}
	if len(obj.GetFinalizers()) > 0 {
		obj = obj.DeepCopy()
		now := metav1.Now()
		obj.SetDeletionTimestamp(&now)
		f.putLocked(resource, obj, false)
		return
	}
	f.removeLocked(resource, key)
}

func (f *fakeVW) removeLocked(resource, key string) {
	f.revision++
	obj := f.objects[resource][key].DeepCopy()
	obj.SetResourceVersion(strconv.Itoa(f.revision))
	delete(f.objects[resource], key)
	f.send(resource, watch.Deleted, obj)
}

func (f *fakeVW) send(resource string, event watch.EventType, obj *unstructured.Unstructured) {
	if f.hidden != nil && f.hidden(resource, obj) {
		return
	}
	for s := range f.streams {
		if s.resource == resource {
			s.events <- watch.Event{Type: event, Object: obj}
		}
	}
}

func (f *fakeVW) get(resource, cluster, namespace, name string) *unstructured.Unstructured {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.objects[resource][storeKey(cluster, namespace, name)]
}

func (f *fakeVW) list(resource string) []*unstructured.Unstructured {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.objects[resource]))
}

// requested returns how many requests there were of "METHOD resource".
func (f *fakeVW) requested(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests[what]
}

func (f *fakeVW) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if root := strings.Split(r.URL.Path, "/")[1]; root != "apis" && root != "clusters" && root != "tunnel" {
		http.NotFound(w, r)
		return
	}
	f.mu.Lock()
	if f.down {
		f.mu.Unlock()
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	f.peer.Tell(w.Header())
	if syncer, err := version.PeerOf(r.Header); err != nil || syncer != version.Self() {
		f.refusal = fmt.Sprintf("the syncer tells %+v, %v", syncer, err)
	}
	if f.refusal != "" {
		defer f.mu.Unlock()
		fail(w, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Message: f.refusal,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: version.SkewCause}}},
		}})
		return
	}
	if r.URL.Path == "/tunnel" {
		f.mu.Unlock()
		if err := f.tunnels.Upgrade(f.ctx, w, r, f.target.GetName(), func() bool { return true }); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
		return
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if path[0] == "apis" {
		defer f.mu.Unlock()
		f.serveTarget(w, r)
		return
	}
	cluster, path := path[1], path[2:]
	if path[0] == "api" {
		path = path[2:]
	} else {
		path = path[3:]
	}
	if cluster == "*" {
		f.serveStream(w, r, path[0])
		return
	}
	defer f.mu.Unlock()
	f.serveObject(w, r, cluster, path)
}

// serveStream is called with the lock held, and gives it back.
func (f *fakeVW) serveStream(w http.ResponseWriter, r *http.Request, resource string) {
	s := &fakeStream{resource: resource, events: make(chan watch.Event, 10000)}
	for _, obj := range f.objects[resource] {
		if f.hidden == nil || !f.hidden(resource, obj) {
			s.events <- watch.Event{Type: watch.Added, Object: obj}
		}
	}
	bookmark := &unstructured.Unstructured{Object: map[string]any{}}
	bookmark.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Bookmark"})
	bookmark.SetResourceVersion(strconv.Itoa(f.revision))
	bookmark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	s.events <- watch.Event{Type: watch.Bookmark, Object: bookmark}
	f.streams[s] = true
	f.mu.Unlock()

	w.Header().Set("Content-Type", "application/json")
	for {
		select {
		case <-r.Context().Done():
			f.mu.Lock()
			delete(f.streams, s)
			f.mu.Unlock()
			return
		case event, ok := <-s.events:
			if !ok {
				return
			}
			if err := json.NewEncoder(w).Encode(map[string]any{"type": event.Type, "object": event.Object.(*unstructured.Unstructured).Object}); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}
}

func (f *fakeVW) serveTarget(w http.ResponseWriter, r *http.Request) {
	if f.retired {
		fail(w, apierrors.NewGone("the sync target does not exist any more")) //nolint:staticcheck // the reason Gone is the contract
		return
	}
	if r.Method == http.MethodPatch {
		f.requests["PATCH synctargets"]++
		f.target = merge(f.target, r)
	}
	respond(w, f.target)
}

// merge applies the request's JSON merge patch (RFC 7386) to a copy of obj.
func merge(obj *unstructured.Unstructured, r *http.Request) *unstructured.Unstructured {
	patch := map[string]any{}
	_ = json.NewDecoder(r.Body).Decode(&patch)
	out := obj.DeepCopy()
	mergeInto(out.Object, patch)
	return out
}

func mergeInto(to, patch map[string]any) {
	for field, value := range patch {
		child, ok := value.(map[string]any)
		switch {
		case value == nil:
			delete(to, field)
		case ok:
			if _, ok := to[field].(map[string]any); !ok {
				to[field] = map[string]any{}
			}
			mergeInto(to[field].(map[string]any), child)
		default:
			to[field] = value
		}
	}
}

func (f *fakeVW) serveObject(w http.ResponseWriter, r *http.Request, cluster string, path []string) {
	namespace, resource := path[1], path[2]
	gr := schema.GroupResource{Resource: resource}
	name, status := "", len(path) == 5
	if len(path) > 3 {
		name = path[3]
	}
	key := storeKey(cluster, namespace, name)
	old, exists := f.objects[resource][key]
	f.requests[r.Method+" "+resource]++
	if name != "" && !exists {
		if r.Header.Get("Content-Type") != string(types.ApplyPatchType) {
			fail(w, apierrors.NewNotFound(gr, name))
			return
		}
		old = &unstructured.Unstructured{Object: map[string]any{}}
		old.SetAnnotations(map[string]string{logicalcluster.AnnotationKey: cluster})
	}
	switch r.Method {
	case http.MethodGet:
		respond(w, old)
	case http.MethodPost, http.MethodPut:
		body, _ := io.ReadAll(r.Body)
		obj := &unstructured.Unstructured{}
		if err := obj.UnmarshalJSON(body); err != nil {
			fail(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		if status && f.refused != nil && f.refused(obj) {
			fail(w, apierrors.NewInvalid(obj.GroupVersionKind().GroupKind(), name, nil))
			return
		}
		if r.Method == http.MethodPost {
			if obj.GetName() == "" {
				obj.SetName(obj.GetGenerateName() + strconv.Itoa(f.revision))
			}
			if _, exists := f.objects[resource][storeKey(cluster, namespace, obj.GetName())]; exists {
				fail(w, apierrors.NewAlreadyExists(gr, obj.GetName()))
				return
			}
		} else if rv := obj.GetResourceVersion(); rv != "" && rv != old.GetResourceVersion() || rv == "" && resource == "syncreports" {
			fail(w, apierrors.NewConflict(gr, name, fmt.Errorf("is at %s, not %s", old.GetResourceVersion(), rv)))
			return
		}
		annotations := obj.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[logicalcluster.AnnotationKey] = cluster
		obj.SetAnnotations(annotations)
		respond(w, f.putLocked(resource, obj, status))
	case http.MethodPatch:
		respond(w, f.putLocked(resource, merge(old, r), status))
	case http.MethodDelete:
		f.deleteLocked(resource, key)
		respond(w, old)
	}
}

func respond(w http.ResponseWriter, obj *unstructured.Unstructured) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(obj.Object)
}

func fail(w http.ResponseWriter, err *apierrors.StatusError) {
	w.Header().Set("Content-Type", "application/json")
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}
