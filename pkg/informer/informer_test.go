package informer_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/informer/informertest"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

func configMap(cluster, namespace, name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Annotations: map[string]string{logicalcluster.AnnotationKey: cluster},
		},
		Data: map[string]string{"value": value},
	}
}

func withVersion(obj *corev1.ConfigMap, version int) *corev1.ConfigMap {
	obj.ResourceVersion = strconv.Itoa(version)
	return obj
}

func summary(objs []*corev1.ConfigMap) []string {
	out := []string{}
	for _, obj := range objs {
		out = append(out, logicalcluster.KeyOf(obj).String()+"="+obj.Data["value"])
	}
	slices.Sort(out)
	return out
}

// events collects what a handler is told.
type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) handle(event informer.Event[*corev1.ConfigMap]) {
	e.mu.Lock()
	defer e.mu.Unlock()
	what := "update"
	switch {
	case event.Added:
		what = "add"
	case event.Deleted:
		what = "delete"
	}
	e.list = append(e.list, what+" "+event.Key.String()+"="+event.Object().Data["value"])
}

func (e *events) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.list
	e.list = nil
	slices.Sort(out)
	return out
}

// TestEqualNamesOfDifferentClusters pins the reason why this package exists.
func TestEqualNamesOfDifferentClusters(t *testing.T) {
	i, _ := informertest.New(t, &corev1.ConfigMap{},
		configMap("a", "ns", "x", "1"), configMap("b", "ns", "x", "2"), configMap("b", "other", "x", "3"))

	for _, tc := range []struct {
		name string
		got  []*corev1.ConfigMap
		want []string
	}{
		{"all", i.List(), []string{"a|ns/x=1", "b|ns/x=2", "b|other/x=3"}},
		{"cluster", i.ListCluster("b"), []string{"b|ns/x=2", "b|other/x=3"}},
		{"namespace", i.ListNamespace("b", "ns"), []string{"b|ns/x=2"}},
		{"unknown cluster", i.ListCluster("c"), []string{}},
	} {
		if diff := cmp.Diff(tc.want, summary(tc.got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
	if obj, ok := i.Get("a", "ns", "x"); !ok || obj.Data["value"] != "1" {
		t.Errorf("Get(a, ns, x) = %v, %t", obj, ok)
	}
	if _, ok := i.Get("c", "ns", "x"); ok {
		t.Error("found an object in a cluster that has none")
	}
}

func TestEvents(t *testing.T) {
	i, feed := informertest.New(t, &corev1.ConfigMap{}, configMap("a", "ns", "x", "1"))
	var seen events
	i.AddHandler(seen.handle)
	if diff := cmp.Diff([]string{"add a|ns/x=1"}, seen.take()); diff != "" {
		t.Errorf("what is there when the handler comes (-want +got):\n%s", diff)
	}
	feed.Put(configMap("a", "ns", "x", "2"))
	feed.Put(configMap("b", "ns", "x", "3"))
	feed.Delete(configMap("a", "ns", "x", "2"))
	feed.Delete(configMap("c", "ns", "x", "never was"))
	want := []string{"add b|ns/x=3", "delete a|ns/x=2", "update a|ns/x=2"}
	if diff := cmp.Diff(want, seen.take()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestManagedFieldsAreDropped(t *testing.T) {
	obj := configMap("a", "ns", "x", "1")
	obj.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	i, _ := informertest.New(t, &corev1.ConfigMap{}, obj)
	if got, _ := i.Get("a", "ns", "x"); len(got.ManagedFields) != 0 {
		t.Errorf("managed fields are held: %v", got.ManagedFields)
	}
}

// server is a list and watch whose watches the test ends at will.
type server struct {
	t      *testing.T
	mu     sync.Mutex
	objs   map[string]*corev1.ConfigMap
	rv     int
	lists  int
	opened chan *watch.FakeWatcher
}

func newServer(t *testing.T) *server {
	return &server{t: t, objs: map[string]*corev1.ConfigMap{}, opened: make(chan *watch.FakeWatcher, 100), rv: 1}
}

func (s *server) put(obj *corev1.ConfigMap) *corev1.ConfigMap {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	obj.ResourceVersion = strconv.Itoa(s.rv)
	s.objs[logicalcluster.KeyOf(obj).String()] = obj
	return obj.DeepCopy()
}

func (s *server) remove(obj *corev1.ConfigMap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	delete(s.objs, logicalcluster.KeyOf(obj).String())
}

func (s *server) list(context.Context, metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.rv)}}
	for _, obj := range s.objs {
		list.Items = append(list.Items, *obj.DeepCopy())
	}
	return list, nil
}

func (s *server) watch(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil {
		// The reflector's WatchList keeps objects by namespace and name meanwhile.
		s.t.Error("asked for initial events on a list that spans clusters")
		return nil, errors.New("no initial events here")
	}
	w := watch.NewFake()
	s.opened <- w
	return w, nil
}

func (s *server) next(t *testing.T) *watch.FakeWatcher {
	t.Helper()
	select {
	case w := <-s.opened:
		return w
	case <-time.After(30 * time.Second):
		t.Fatal("no watch within 30 s")
		return nil
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func run(t *testing.T, i *informer.Informer[*corev1.ConfigMap]) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		i.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// TestReflectAfterLostWatch lets changes happen while nobody watches: the handlers are
// told the difference, and equal names of different clusters stay apart.
func TestReflectAfterLostWatch(t *testing.T) {
	s := newServer(t)
	s.put(configMap("a", "ns", "x", "1"))
	s.put(configMap("b", "ns", "x", "1"))
	s.put(configMap("b", "ns", "y", "1"))
	i := informer.New[*corev1.ConfigMap]("configmaps", informer.Reflect(s.list, s.watch), nil)
	var seen events
	i.AddHandler(seen.handle)
	run(t, i)
	if !i.WaitForSync(t.Context()) {
		t.Fatal("not synced")
	}
	if diff := cmp.Diff([]string{"add a|ns/x=1", "add b|ns/x=1", "add b|ns/y=1"}, seen.take()); diff != "" {
		t.Errorf("events at first (-want +got):\n%s", diff)
	}

	w := s.next(t)
	w.Add(s.put(configMap("c", "ns", "x", "1")))
	eventually(t, "the added object", func() bool { _, ok := i.Get("c", "ns", "x"); return ok })
	seen.take()

	// The watch ends with 410; meanwhile: one changed, one gone, one new.
	s.put(configMap("a", "ns", "x", "2"))
	s.remove(configMap("b", "ns", "x", ""))
	s.put(configMap("d", "ns", "x", "1"))
	w.Error(&metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: 410, Message: "too old resource version"})
	s.next(t)
	want := []string{"add d|ns/x=1", "delete b|ns/x=1", "update a|ns/x=2"}
	if diff := cmp.Diff(want, seen.take()); diff != "" {
		t.Errorf("events after the lost watch (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a|ns/x=2", "b|ns/y=1", "c|ns/x=1", "d|ns/x=1"}, summary(i.List())); diff != "" {
		t.Errorf("store (-want +got):\n%s", diff)
	}
}

// TestStream cuts a stream in its initial state, and later between changes: the store
// keeps what it had until a new stream has told its whole state.
func TestStream(t *testing.T) {
	t.Run("Objects", func(t *testing.T) { testStream(t) })
	t.Run("Encoded", func(t *testing.T) { testStream(t, informer.WithCodec[*corev1.ConfigMap](codec{})) })
}

func testStream(t *testing.T, options ...informer.Option[*corev1.ConfigMap]) {
	t.Helper()
	streams := make(chan *watch.FakeWatcher, 100)
	opened := func() *watch.FakeWatcher {
		t.Helper()
		select {
		case w := <-streams:
			return w
		case <-time.After(30 * time.Second):
			t.Fatal("no stream within 30 s")
			return nil
		}
	}
	i := informer.New[*corev1.ConfigMap]("configmaps", informer.Stream(func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		if opts.SendInitialEvents == nil || !*opts.SendInitialEvents || opts.ResourceVersion != "" {
			t.Errorf("a stream must start with the whole state, asked with %+v", opts)
		}
		w := watch.NewFake()
		streams <- w
		return w, nil
	}), nil, options...)
	run(t, i)
	end := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	object := func(cluster, value string, version int) *corev1.ConfigMap {
		return withVersion(configMap(cluster, "ns", "x", value), version)
	}

	w := opened()
	w.Add(object("a", "1", 10))
	w.Stop() // in the initial state

	w = opened()
	if i.HasSynced() || len(i.List()) != 0 {
		t.Error("a stream that ended in its initial state counts")
	}
	w.Add(object("a", "1", 10))
	w.Add(object("b", "1", 11))
	w.Add(object("c", "1", 12))
	w.Modify(object("b", "2", 13)) // changes may be mixed in
	w.Delete(object("c", "1", 14))
	w.Action(watch.Bookmark, end)
	w.Add(object("d", "1", 5)) // older than what was sent: assigned later
	w.Action(watch.Bookmark, &corev1.ConfigMap{})
	if diff := cmp.Diff([]string{"a|ns/x=1", "b|ns/x=2", "d|ns/x=1"}, summary(i.List())); diff != "" {
		t.Errorf("store (-want +got):\n%s", diff)
	}

	var seen events
	i.AddHandler(seen.handle)
	seen.take()
	w.Stop()
	w = opened()
	w.Add(object("b", "2", 13))
	if diff := cmp.Diff([]string{"a|ns/x=1", "b|ns/x=2", "d|ns/x=1"}, summary(i.List())); diff != "" {
		t.Errorf("store while the new stream has not told its state (-want +got):\n%s", diff)
	}
	w.Add(object("d", "3", 20))
	w.Action(watch.Bookmark, end)
	w.Action(watch.Bookmark, &corev1.ConfigMap{})
	if diff := cmp.Diff([]string{"delete a|ns/x=1", "update d|ns/x=3"}, seen.take()); diff != "" {
		t.Errorf("events of the new stream (-want +got):\n%s", diff)
	}
}

// TestObjectWithoutCluster fails closed: nothing is stored under an empty cluster.
func TestObjectWithoutCluster(t *testing.T) {
	s := newServer(t)
	s.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}})
	i := informer.New[*corev1.ConfigMap]("configmaps", informer.Reflect(s.list, s.watch), nil)
	run(t, i)
	eventually(t, "a list", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.lists > 0 })
	if i.HasSynced() || len(i.List()) != 0 {
		t.Errorf("synced = %t, objects = %v", i.HasSynced(), summary(i.List()))
	}
}
