package storage

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/metrics"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/server/etcd"
)

var (
	configMaps = core.Resource("configmaps")
	secrets    = core.Resource("secrets")
)

// fixture is a registry with two resources over an etcd of its own.
type fixture struct {
	*Registry
	client *clientv3.Client
	store  *clusterStorage
	// clock is that of the trimming.
	clock *testingclock.FakeClock
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	metrics.Register()
	dir := t.TempDir()
	server, err := etcd.Start(t.Context(), filepath.Join(dir, "etcd"), filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	transport := storagebackend.TransportConfig{ServerList: []string{server.Endpoint}}
	f := &fixture{Registry: NewRegistry(), clock: testingclock.NewFakeClock(time.Now())}
	if f.client, err = etcd.NewClient(transport); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.client.Close() })
	t.Cleanup(f.Close)
	f.Registry.clock = f.clock
	f.add(t, transport, configMaps, func() runtime.Object { return &core.ConfigMap{} }, func() runtime.Object { return &core.ConfigMapList{} })
	f.add(t, transport, secrets, func() runtime.Object { return &core.Secret{} }, func() runtime.Object { return &core.SecretList{} })
	if f.store, err = f.Registry.store(configMaps); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) add(t *testing.T, transport storagebackend.TransportConfig, gr schema.GroupResource, newObject, newList func() runtime.Object) {
	t.Helper()
	config := storagebackend.NewDefaultConfig("/registry", legacyscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion))
	config.Transport = transport
	prefix := "/" + gr.Resource
	s, _, err := f.decorate(config.ForResource(gr), prefix,
		func(obj runtime.Object) (string, error) {
			accessor := obj.(metav1.Object)
			return prefix + "/" + accessor.GetNamespace() + "/" + accessor.GetName(), nil
		},
		newObject, newList,
		func(obj runtime.Object) (labels.Set, fields.Set, error) {
			accessor := obj.(metav1.Object)
			return accessor.GetLabels(), generic.ObjectMetaFieldsSet(&metav1.ObjectMeta{Namespace: accessor.GetNamespace(), Name: accessor.GetName()}, true), nil
		}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, gr.Resource+" is cached", func() bool { return s.ReadinessCheck() == nil })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func in(t *testing.T, cluster logicalcluster.Name) context.Context {
	return logicalcluster.WithCluster(t.Context(), cluster)
}

func object(name string, finalizers ...string) *core.ConfigMap {
	return &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Finalizers: finalizers}}
}

func (f *fixture) create(t *testing.T, cluster logicalcluster.Name, obj *core.ConfigMap) *core.ConfigMap {
	t.Helper()
	out := &core.ConfigMap{}
	if err := f.store.Create(in(t, cluster), "/configmaps/ns/"+obj.Name, obj, out, 0); err != nil {
		t.Fatal(err)
	}
	return out
}

// names lists a cluster consistently; with a version of "0", from the cache.
func (f *fixture) names(t *testing.T, cluster logicalcluster.Name, version string) []string {
	t.Helper()
	list := &core.ConfigMapList{}
	opts := storage.ListOptions{ResourceVersion: version, Predicate: storage.Everything, Recursive: true}
	if err := f.store.GetList(in(t, cluster), "/configmaps", opts, list); err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, item := range list.Items {
		out = append(out, string(logicalcluster.From(&item))+"/"+item.Name+"="+item.Data["v"])
	}
	slices.Sort(out)
	return out
}

func TestFill(t *testing.T) {
	f := newFixture(t)
	owner := f.create(t, "parent", object("owner"))
	secret := func(name string) *core.Secret {
		return &core.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	}
	fill := func(version string, objects ...Object) error {
		changed := object("owner")
		changed.ResourceVersion, changed.Data = version, map[string]string{"v": "ready"}
		return f.Fill(t.Context(), f.client, objects, Object{"parent", configMaps, changed})
	}
	// stored returns the keys in etcd that a revision has written.
	stored := func(revision string) []string {
		t.Helper()
		rev, err := strconv.ParseInt(revision, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := f.client.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithMinModRev(rev), clientv3.WithMaxModRev(rev))
		if err != nil {
			t.Fatal(err)
		}
		keys := []string{}
		for _, kv := range resp.Kvs {
			keys = append(keys, string(kv.Key))
		}
		return keys
	}
	version := func() string {
		t.Helper()
		out := &core.ConfigMap{}
		if err := f.store.Get(in(t, "parent"), "/configmaps/ns/owner", storage.GetOptions{}, out); err != nil {
			t.Fatal(err)
		}
		return out.ResourceVersion
	}

	if err := fill("1", Object{"child", secrets, secret("x")}); !apierrors.IsConflict(err) {
		t.Errorf("owner of another version: %v, want a conflict", err)
	}
	if err := fill("", Object{"child", secrets, secret("x")}); err == nil {
		t.Error("an owner without version was accepted")
	}
	if err := fill(owner.ResourceVersion, Object{"child", secrets, secret("x")}, Object{"child", secrets, secret("y")}); err == nil {
		t.Error("two objects of one resource were accepted")
	}
	if err := fill(owner.ResourceVersion, Object{logicalcluster.Wildcard, secrets, secret("x")}); err == nil {
		t.Error("an object in the wildcard cluster was accepted")
	}
	if got := version(); got != owner.ResourceVersion || len(f.names(t, "child", "")) > 0 {
		t.Errorf("what was refused has written: owner at %s, child %v", got, f.names(t, "child", ""))
	}

	if err := fill(owner.ResourceVersion, Object{"child", secrets, secret("x")}); err != nil {
		t.Fatal(err)
	}
	created := &core.Secret{}
	s, err := f.Registry.store(secrets)
	if err != nil {
		t.Fatal(err)
	}
	// From the cache, at once.
	if err := s.Get(in(t, "child"), "/secrets/ns/x", storage.GetOptions{ResourceVersion: "0"}, created); err != nil {
		t.Errorf("the object is not in the cache: %v", err)
	}
	first := version()
	if diff := cmp.Diff([]string{"/registry/configmaps/parent/ns/owner"}, stored(first)); diff != "" {
		t.Errorf("written last by the first (-want +got):\n%s", diff)
	}
	// Again, as after a crash: what is there stays, what is missing comes.
	if err := fill(first, Object{"child", secrets, secret("x")}, Object{"child", configMaps, object("y")}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/registry/secrets/child/ns/x"}, stored(created.ResourceVersion)); diff != "" {
		t.Errorf("left of the first (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"child/y="}, f.names(t, "child", "")); diff != "" {
		t.Errorf("child (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"parent/owner=ready"}, f.names(t, "parent", "")); diff != "" {
		t.Errorf("owner (-want +got):\n%s", diff)
	}
}

func TestContentAndDeletion(t *testing.T) {
	f := newFixture(t)
	f.Expect(schema.GroupResource{Group: "example.com", Resource: "later"}, "/registry", "example.com/later")
	owner := f.create(t, "parent", object("owner"))
	// More than fit on the first page and on the next.
	const many = firstPage + 3
	for n := range many {
		f.create(t, "child", object("x"+strconv.Itoa(n)))
	}
	held := f.create(t, "child", object("zz", "example.com/hold"))
	f.create(t, "child2", object("x0", "example.com/hold"))
	if _, err := f.client.Put(t.Context(), "/registry/example.com/later/child/y", "{}"); err != nil {
		t.Fatal(err)
	}
	none := func(schema.GroupResource) bool { return false }
	read := func(skip func(schema.GroupResource) bool) *Content {
		t.Helper()
		content, err := f.Content(t.Context(), f.client, "child", skip)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	finalized := func(c *Content) (names []string) {
		for _, o := range c.Finalized {
			names = append(names, o.Resource.String()+" "+o.Object.GetName())
		}
		return names
	}
	delete := func(c *Content, revision string) error {
		t.Helper()
		rev, err := strconv.ParseInt(revision, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return f.DeleteCluster(t.Context(), f.client, c, &Owner{Cluster: "parent", Resource: configMaps, Name: "ns/owner", Revision: rev})
	}

	content := read(none)
	if diff := cmp.Diff([]string{"configmaps zz"}, finalized(content)); diff != "" {
		t.Errorf("finalized (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]schema.GroupResource{{Group: "example.com", Resource: "later"}}, content.Unread); diff != "" {
		t.Errorf("unread (-want +got):\n%s", diff)
	}
	if got := finalized(read(func(gr schema.GroupResource) bool { return gr == configMaps })); got != nil {
		t.Errorf("finalized without config maps: %v, want none", got)
	}

	everything := f.names(t, "child", "")
	if err := delete(content, held.ResourceVersion); !apierrors.IsConflict(err) {
		t.Errorf("owner of another version: %v, want a conflict", err)
	}
	f.create(t, "child", object("late"))
	if err := delete(content, owner.ResourceVersion); !apierrors.IsConflict(err) {
		t.Errorf("something came in: %v, want a conflict", err)
	}
	if diff := cmp.Diff(append([]string{"child/late="}, everything...), f.names(t, "child", "")); diff != "" {
		t.Errorf("after conflicts (-want +got):\n%s", diff)
	}

	if err := delete(read(none), owner.ResourceVersion); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"child2/x0="}, f.names(t, logicalcluster.Wildcard, "")); diff != "" {
		t.Errorf("after the deletion (-want +got):\n%s", diff)
	}
	resp, err := f.client.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) != 1 {
		t.Errorf("etcd has %v, want the other cluster's object alone", resp.Kvs)
	}
	for _, cluster := range []logicalcluster.Name{logicalcluster.Root, logicalcluster.System} {
		content, err := f.Content(t.Context(), f.client, cluster, none)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.DeleteCluster(t.Context(), f.client, content, nil); err == nil {
			t.Errorf("cluster %q can be deleted", cluster)
		}
	}
}

// capacity returns how many events the watch cache of config maps has room for.
func capacity(t *testing.T) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "watch_cache_capacity" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "resource" && label.GetValue() == configMaps.Resource {
					return metric.GetGauge().GetValue()
				}
			}
		}
	}
	t.Fatal("the watch cache tells no capacity")
	return 0
}

// TestHistoryIsForgotten fills the history of a watch cache, lets time pass, and finds it
// empty, without a watcher having been told anything or missing anything.
func TestHistoryIsForgotten(t *testing.T) {
	f := newFixture(t)
	watchFrom := func(cluster logicalcluster.Name, version string) (watch.Interface, error) {
		return f.store.Watch(in(t, cluster), "/configmaps", storage.ListOptions{ResourceVersion: version, Predicate: storage.Everything, Recursive: true})
	}
	next := func(w watch.Interface) watch.Event {
		t.Helper()
		select {
		case event := <-w.ResultChan():
			return event
		case <-time.After(time.Minute):
			t.Fatal("no event within a minute")
			return watch.Event{}
		}
	}
	const events = 3*minHistory + 7
	first := f.create(t, "a", object("x0"))
	all, err := watchFrom(logicalcluster.Wildcard, first.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	defer all.Stop()
	last := first
	for n := range events - 1 {
		last = f.create(t, "a", object("x"+strconv.Itoa(n+1)))
		if name := nameOf(t, next(all)); name != last.Name {
			t.Fatalf("told of %q, want %q", name, last.Name)
		}
	}
	if got := capacity(t); got < events {
		t.Fatalf("the history has room for %v events, want all %d", got, events)
	}
	if w, err := watchFrom("a", first.ResourceVersion); err != nil {
		t.Fatal(err)
	} else if event := next(w); nameOf(t, event) != "x1" {
		t.Errorf("watch from the first: %+v, want x1", event)
	}

	// Another resource moves the revision on, and time passes.
	elsewhere := &core.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}}
	s, err := f.Registry.store(secrets)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Create(in(t, "a"), "/secrets/ns/s", elsewhere, &core.Secret{}, 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the history shrinks", func() bool {
		f.clock.Step(2 * time.Minute)
		return capacity(t) == minHistory
	})
	// The old ones are pushed out of what is left, too.
	eventually(t, "the history is forgotten", func() bool {
		f.clock.Step(time.Second)
		w, err := watchFrom("a", strconv.FormatUint(f.revision(t, last)-1, 10))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		select {
		case event := <-w.ResultChan():
			status, ok := event.Object.(*metav1.Status)
			return ok && status.Reason == metav1.StatusReasonExpired
		case <-time.After(time.Second):
			t.Fatal("a watch from before the last event misses it")
			return false
		}
	})

	// What was watched before is told the next event and nothing else; a watch from the last
	// event's revision is accepted and told the same.
	again, err := watchFrom("a", last.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	f.create(t, "a", object("new"))
	for name, w := range map[string]watch.Interface{"open all the time": all, "from the last event": again} {
		if event := next(w); nameOf(t, event) != "new" {
			t.Errorf("watch %s: %+v, want the new object", name, event)
		}
	}
	if got := len(f.names(t, "a", "0")); got != events+1 {
		t.Errorf("the cache has %d objects, want %d", got, events+1)
	}
}

func (f *fixture) revision(t *testing.T, obj *core.ConfigMap) uint64 {
	t.Helper()
	revision, err := f.store.Versioner().ParseResourceVersion(obj.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// nameOf returns the name of the object that was added.
func nameOf(t *testing.T, event watch.Event) string {
	t.Helper()
	if event.Type != watch.Added {
		t.Fatalf("event %+v, want an added object", event)
	}
	if cached, ok := event.Object.(runtime.CacheableObject); ok {
		return cached.GetObject().(*core.ConfigMap).Name
	}
	return event.Object.(*core.ConfigMap).Name
}
