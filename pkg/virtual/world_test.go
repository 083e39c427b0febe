package virtual

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	clocktesting "k8s.io/utils/clock/testing"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/server/apierror"
	"github.com/13eedeaf/kcp/pkg/tunnel"
	"github.com/13eedeaf/kcp/pkg/version"
)

// serverTime is what the server's clock shows.
var serverTime = time.Date(2030, 1, 1, 0, 0, 0, 123456000, time.UTC)

// world is a small API server: objects of all clusters under one revision, an
// http.Handler over them, and informers that follow them and can be held back.
type world struct {
	t       *testing.T
	handler *Handler
	server  *httptest.Server
	// allow decides for the authorizer.
	allow func(logicalcluster.Name, authorizer.Attributes) bool

	mu       sync.Mutex
	cond     *sync.Cond
	done     bool
	revision int64
	objects  map[string]map[logicalcluster.Key]*unstructured.Unstructured
	log      map[string][]logged
	held     map[string]bool
	// busy keeps requests of the tests from waiting for the informers.
	busy      bool
	lists     map[string]int
	requests  []recorded
	informers map[schema.GroupVersionResource]*informer.Informer[*unstructured.Unstructured]
	targets   *informer.Informer[*workloadv1alpha1.SyncTarget]
	// peer is what the tests' requests tell of their syncer.
	peer version.Peer
}

type logged struct {
	revision int64
	event    watch.Event
}

// recorded is a write that reached the main API.
type recorded struct {
	Cluster, Method, Path, ContentType, User string
	Body                                     any
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t:         t,
		allow:     func(logicalcluster.Name, authorizer.Attributes) bool { return true },
		objects:   map[string]map[logicalcluster.Key]*unstructured.Unstructured{},
		log:       map[string][]logged{},
		held:      map[string]bool{},
		lists:     map[string]int{},
		peer:      version.Self(),
		informers: map[schema.GroupVersionResource]*informer.Informer[*unstructured.Unstructured]{},
	}
	w.cond = sync.NewCond(&w.mu)
	ctx, cancel := context.WithCancel(context.Background())
	w.targets = informer.New[*workloadv1alpha1.SyncTarget]("synctargets", w.source("synctargets", func(u *unstructured.Unstructured) runtime.Object {
		st := &workloadv1alpha1.SyncTarget{}
		if err := fromUnstructured(u, st); err != nil {
			t.Error(err)
		}
		return st
	}), nil)
	go w.targets.Run(ctx)
	w.handler = NewHandler(ctx, Config{
		Informers:  w.withContext(ctx),
		Authorizer: w,
		API:        http.HandlerFunc(w.serveAPI),
		Tunnels:    &tunnel.Tunnels{},
		Clock:      clocktesting.NewFakePassiveClock(serverTime),
		Resolve: func(_ context.Context, p logicalcluster.Path) (logicalcluster.Name, error) {
			if p == "root:org" {
				return "org", nil
			}
			return "", apierrors.NewNotFound(schema.GroupResource{}, string(p))
		},
		EffectiveLocations: func(_ context.Context, cluster logicalcluster.Name) ([]*schedulingv1alpha1.Location, error) {
			return []*schedulingv1alpha1.Location{
				{ObjectMeta: metav1.ObjectMeta{Name: "default", Annotations: map[string]string{"kcp.io/path": "root"}}},
				{ObjectMeta: metav1.ObjectMeta{Name: "own-of-" + string(cluster)}},
			}, nil
		},
	})
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		u := &user.DefaultInfo{Name: "syncer-1", Groups: r.Header.Values("Test-Group")}
		w.handler.ServeHTTP(rw, r.WithContext(request.WithUser(r.Context(), u)))
	}))
	t.Cleanup(func() {
		cancel()
		w.server.Close()
		w.mu.Lock()
		w.done = true
		w.mu.Unlock()
		w.cond.Broadcast()
	})
	return w
}

type boundWorld struct {
	*world
	ctx context.Context
}

func (w *world) withContext(ctx context.Context) boundWorld { return boundWorld{w, ctx} }

func (w boundWorld) SyncTargets() *informer.Informer[*workloadv1alpha1.SyncTarget] { return w.targets }

func (w boundWorld) Unstructured(gvr schema.GroupVersionResource) *informer.Informer[*unstructured.Unstructured] {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i, ok := w.informers[gvr]; ok {
		return i
	}
	i := informer.New[*unstructured.Unstructured](gvr.Resource, w.source(gvr.Resource, func(u *unstructured.Unstructured) runtime.Object { return u }), nil)
	w.informers[gvr] = i
	go i.Run(w.ctx)
	return i
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (w *world) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	cluster, err := logicalcluster.FromContext(ctx)
	if err != nil {
		return authorizer.DecisionDeny, "", err
	}
	if w.allow(cluster, a) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "RBAC: no rule", nil
}

// source lists and watches one resource of the world.
func (w *world) source(resource string, convert func(*unstructured.Unstructured) runtime.Object) informer.Source {
	return informer.Reflect(func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lists[resource]++
		list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(w.revision, 10)}}
		for _, obj := range w.objects[resource] {
			list.Items = append(list.Items, runtime.RawExtension{Object: convert(obj.DeepCopy())})
		}
		return list, nil
	}, func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		since, err := strconv.ParseInt(options.ResourceVersion, 10, 64)
		if err != nil {
			return nil, err
		}
		events := make(chan watch.Event)
		go w.feed(ctx, resource, since, convert, events)
		return watch.NewProxyWatcher(events), nil
	})
}

func (w *world) feed(ctx context.Context, resource string, since int64, convert func(*unstructured.Unstructured) runtime.Object, events chan<- watch.Event) {
	defer close(events)
	for next := 0; ; next++ {
		w.mu.Lock()
		for !w.done && (w.held[resource] || next >= len(w.log[resource])) {
			w.cond.Wait()
		}
		if w.done {
			w.mu.Unlock()
			return
		}
		l := w.log[resource][next]
		w.mu.Unlock()
		if l.revision <= since {
			continue
		}
		select {
		case events <- watch.Event{Type: l.event.Type, Object: convert(l.event.Object.(*unstructured.Unstructured).DeepCopy())}:
		case <-ctx.Done():
			return
		}
	}
}

// hold stops the events of a resource; release lets them go.
func (w *world) hold(resource string)    { w.setHeld(resource, true) }
func (w *world) release(resource string) { w.setHeld(resource, false) }

func (w *world) setHeld(resource string, held bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[resource] = held
	w.cond.Broadcast()
}

// settle returns when the informers that are not held back have seen everything.
func (w *world) settle() {
	w.t.Helper()
	if w.busy {
		return
	}
	w.eventually("informers have caught up", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		behind := func(resource string, revision uint64) bool {
			l := w.log[resource]
			return !w.held[resource] && len(l) > 0 && uint64(l[len(l)-1].revision) > revision
		}
		for gvr, i := range w.informers {
			if behind(gvr.Resource, i.Revision()) {
				return false
			}
		}
		return !behind("synctargets", w.targets.Revision())
	})
}

// eventually polls until ok holds.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	timeout := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-ticker.C:
		case <-timeout:
			w.t.Fatalf("it never came to this: %s", what)
		}
	}
}

// put creates or replaces an object.
func (w *world) put(resource string, obj *unstructured.Unstructured) *unstructured.Unstructured {
	w.mu.Lock()
	defer w.mu.Unlock()
	obj = obj.DeepCopy()
	key := logicalcluster.KeyOf(obj)
	event := watch.Added
	w.revision++
	if w.objects[resource] == nil {
		w.objects[resource] = map[logicalcluster.Key]*unstructured.Unstructured{}
	}
	if old, ok := w.objects[resource][key]; ok {
		event = watch.Modified
		obj.SetUID(old.GetUID())
	} else if obj.GetUID() == "" {
		obj.SetUID(types.UID(fmt.Sprintf("uid-%d", w.revision)))
	}
	obj.SetResourceVersion(strconv.FormatInt(w.revision, 10))
	w.objects[resource][key] = obj
	w.log[resource] = append(w.log[resource], logged{w.revision, watch.Event{Type: event, Object: obj}})
	w.cond.Broadcast()
	return obj
}

func (w *world) remove(resource string, obj *unstructured.Unstructured) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := logicalcluster.KeyOf(obj)
	w.revision++
	gone := w.objects[resource][key].DeepCopy()
	gone.SetResourceVersion(strconv.FormatInt(w.revision, 10))
	delete(w.objects[resource], key)
	w.log[resource] = append(w.log[resource], logged{w.revision, watch.Event{Type: watch.Deleted, Object: gone}})
	w.cond.Broadcast()
}

// serveAPI is the main API: reads from the objects, writes are recorded only.
func (w *world) serveAPI(rw http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	cluster, err := logicalcluster.FromContext(r.Context())
	u, hasUser := request.UserFrom(r.Context())
	if !ok || err != nil || !hasUser {
		w.t.Errorf("request to the API without RequestInfo (%v), cluster (%v) or user (%v)", ok, err, hasUser)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	gr := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	switch info.Verb {
	case "get":
		if !info.IsResourceRequest {
			fmt.Fprintf(rw, `{"path":%q,"cluster":%q}`, r.URL.Path, cluster)
			return
		}
		obj, ok := w.objects[info.Resource][logicalcluster.Key{Cluster: cluster, Namespace: info.Namespace, Name: info.Name}]
		if !ok {
			apierror.Write(rw, r, apierrors.NewNotFound(gr, info.Name))
			return
		}
		_ = json.NewEncoder(rw).Encode(obj.Object)
	case "list":
		w.lists[info.Resource]++
		items := []any{}
		for key, obj := range w.objects[info.Resource] {
			if key.Cluster == cluster && (info.Namespace == "" || info.Namespace == key.Namespace) {
				items = append(items, obj.Object)
			}
		}
		_ = json.NewEncoder(rw).Encode(map[string]any{"kind": "List", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": strconv.FormatInt(w.revision, 10)}, "items": items})
	default:
		b, err := io.ReadAll(r.Body)
		if err != nil {
			w.t.Error(err)
		}
		if !slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
			w.t.Errorf("%s of %s as %v, whom the API's own check of a create refuses", r.Method, r.URL.Path, u)
		}
		rec := recorded{Cluster: string(cluster), Method: r.Method, Path: r.URL.Path, ContentType: r.Header.Get("Content-Type"), User: u.GetName()}
		if err := json.Unmarshal(b, &rec.Body); err != nil {
			w.t.Errorf("forwarded body %q: %v", b, err)
		}
		w.requests = append(w.requests, rec)
		_, _ = fmt.Fprintf(rw, `{"sent":%s}`, b)
	}
}

func (w *world) recordedWrites() []recorded {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests)
}

// Objects of the tests.

func obj(kind string, cluster logicalcluster.Name, namespace, name string, edit ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{
		"name": name, "annotations": map[string]any{"kcp.io/cluster": string(cluster)},
	}}}
	if namespace != "" {
		o.SetNamespace(namespace)
	}
	for _, f := range edit {
		f(o)
	}
	return o
}

func field(value any, path ...string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
			panic(err)
		}
	}
}

func labelled(target string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"workload.kcp.io/target": target}) }
}

// target is a registered SyncTarget.
type target struct{ base, key, name string }

func (w *world) register(name string, allowed ...string) target {
	w.t.Helper()
	list := []any{}
	for _, r := range allowed {
		resource, group, _ := strings.Cut(r, ".")
		list = append(list, map[string]any{"resource": resource, "group": group})
	}
	st := w.put("synctargets", obj("SyncTarget", "compute", "", name, field(list, "spec", "resources")))
	return target{
		base: fmt.Sprintf("/services/syncer/compute/%s/%s", name, st.GetUID()),
		key:  workloadv1alpha1.TargetKey("compute", st.GetUID()),
		name: name,
	}
}

func assignment(cluster logicalcluster.Name, namespace string, to target) *unstructured.Unstructured {
	return obj("Assignment", cluster, namespace, to.key, field(to.key, "spec", "target"), field("Active", "spec", "state"))
}
