package syncer

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

// watched counts the watches that a syncer begins, by path.
type watched struct {
	http.RoundTripper
	mu    *sync.Mutex
	paths map[string]int
}

func (c watched) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "true" {
		c.mu.Lock()
		c.paths[r.URL.Path]++
		c.mu.Unlock()
	}
	return c.RoundTripper.RoundTrip(r)
}

// watches has the watches of syncers that are started from now on counted, and returns how
// many there were of what contains all of parts.
func (w *world) watches() func(parts ...string) int {
	c := watched{mu: &sync.Mutex{}, paths: map[string]int{}}
	w.syncer.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		c.RoundTripper = rt
		return c
	})
	return func(parts ...string) int {
		c.mu.Lock()
		defer c.mu.Unlock()
		n := 0
		for path, count := range c.paths {
			all := true
			for _, part := range parts {
				all = all && strings.Contains(path, part)
			}
			if all {
				n += count
			}
		}
		return n
	}
}

// The memory of a syncer must not grow by watches with each namespace.
func TestNamespacesAddNoWatches(t *testing.T) {
	w := newWorld(t)
	watches := w.watches()
	const namespaces = 5
	var keys []namespaceKey
	for i := range namespaces {
		key := namespaceKey{tenantCluster, fmt.Sprintf("quiet-%d", i)}
		keys = append(keys, key)
		for resource, text := range map[string]string{
			"configmaps": settings, "secrets": password, "services": service,
			"assignments": fmt.Sprintf("{apiVersion: scheduling.kcp.io/v1alpha1, kind: Assignment, metadata: {name: %[1]s}, spec: {target: %[1]s}}", w.id.targetKey),
		} {
			obj := parse(t, text)
			obj.SetNamespace(key.Namespace)
			w.vw.put(resource, obj)
		}
	}
	w.start()
	for _, key := range keys {
		w.eventually("the objects of "+key.String()+" are there", func() bool {
			ctx, namespace := t.Context(), w.id.namespace(key)
			_, noSettings := w.kube.CoreV1().ConfigMaps(namespace).Get(ctx, "settings", metav1.GetOptions{})
			_, noPassword := w.kube.CoreV1().Secrets(namespace).Get(ctx, "password", metav1.GetOptions{})
			_, noService := w.kube.CoreV1().Services(namespace).Get(ctx, "web", metav1.GetOptions{})
			return noSettings == nil && noPassword == nil && noService == nil
		})
	}
	if n := watches("/namespaces/"); n != 0 {
		t.Errorf("%d watches in single namespaces, want none", n)
	}
	if watches("/services") == 0 {
		t.Error("no watch was counted at all")
	}
}

// Drift in Secrets and ConfigMaps of each kind: changed, taken away, not ours any more,
// and what nobody in the workspace has.
func TestDriftInWhatIsNotWatched(t *testing.T) {
	w := deployed(t)
	ctx, secrets := t.Context(), w.kube.CoreV1().Secrets(w.namespace)
	genuine := func() bool {
		s, err := secrets.Get(ctx, "password", metav1.GetOptions{})
		return err == nil && string(s.Data["p"]) == "s3cr3t" && s.Labels[names.SyncerLabel] == w.id.instanceID
	}
	w.eventually("the secret is there", genuine)
	for what, patch := range map[string]string{
		"changed":   `{"data":{"p":"eA=="}}`,
		"unlabeled": `{"metadata":{"labels":{"` + names.SyncerLabel + `":null}}}`,
	} {
		if _, err := secrets.Patch(ctx, "password", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		w.eventually("the secret that was "+what+" is put right", genuine)
	}
	if err := secrets.Delete(ctx, "password", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the secret that was deleted is back", genuine)

	stray := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stray", Labels: map[string]string{names.SyncerLabel: w.id.instanceID}}}
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}
	for _, c := range []*corev1.ConfigMap{foreign, stray} {
		if _, err := w.kube.CoreV1().ConfigMaps(w.namespace).Create(ctx, c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("a copy of nothing goes", func() bool { return w.downstream(configMaps, stray.Name) == nil })
	if w.downstream(configMaps, foreign.Name) == nil {
		t.Error("what is not the syncer's is gone, too")
	}
}

// What drifted while no syncer ran is seen when one starts.
func TestDriftWhileAway(t *testing.T) {
	w := deployed(t)
	w.stop()
	patch := []byte(`{"data":{"color":"green"}}`)
	if _, err := w.kube.CoreV1().ConfigMaps(w.namespace).Patch(t.Context(), "settings", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.vw.remove("secrets", tenantCluster, tenantNamespace, "password")
	w.start()
	w.eventually("the change is undone", func() bool { return field(w.downstream(configMaps, "settings"), "data", "color") == "blue" })
	w.eventually("what was deleted meanwhile is gone", func() bool { return w.downstream(gvr("", "v1", "secrets"), "password") == nil })
}

// An immutable object that is made anew has to be deleted downstream, of which no event
// tells.
func TestImmutableIsMadeAnew(t *testing.T) {
	w := deployed(t)
	immutable := strings.Replace(settings, "name: settings}", "name: fixed}\nimmutable: true", 1)
	w.put("configmaps", immutable)
	color := func() any { return field(w.downstream(configMaps, "fixed"), "data", "color") }
	w.eventually("it is applied", func() bool { return color() == "blue" })
	w.vw.mu.Lock()
	uid := w.vw.objects["configmaps"][storeKey(tenantCluster, tenantNamespace, "fixed")].GetUID()
	w.vw.mu.Unlock()
	w.vw.hide(func(resource string, _ *unstructured.Unstructured) bool { return resource == "configmaps" })
	w.vw.remove("configmaps", tenantCluster, tenantNamespace, "fixed")
	if w.put("configmaps", strings.Replace(immutable, "blue", "red", 1)).GetUID() == uid {
		t.Fatal("it is the same object")
	}
	w.vw.hide(nil)
	w.eventually("the new one is applied", func() bool { return color() == "red" })
}

// Nobody listens for events in a namespace where nothing runs; they are told nevertheless.
func TestEventsWhereNothingRuns(t *testing.T) {
	w := newWorld(t)
	watches := w.watches()
	w.put("services", service)
	w.assign()
	w.start()
	w.eventually("the service is there", func() bool { return w.downstream(gvr("", "v1", "services"), "web") != nil })
	if n := watches("/events"); n != 0 {
		t.Errorf("%d watches of events before there was one, want none", n)
	}
	now := metav1.Now()
	if _, err := w.kube.CoreV1().Events(w.namespace).Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "web.1", Namespace: w.namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: w.namespace, Name: "web"},
		Reason:         "SyncLoadBalancerFailed", Message: "no addresses left", Type: corev1.EventTypeWarning,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the event is told", func() bool {
		for _, e := range w.vw.list("events") {
			if e.Object["message"] == "no addresses left" {
				return true
			}
		}
		return false
	})
}

// TestListening has more namespaces than may be listened to at a time.
func TestListening(t *testing.T) {
	// Nothing answers; the watches try in vain until the test ends.
	d := newDownstream(dynamicFor(t, &rest.Config{Host: "127.0.0.1:1"}), nil, "id", nil)
	namespace := func(i int) string { return fmt.Sprint("ns-", i) }
	for i := range maxListening + 1 {
		ns := &unstructured.Unstructured{Object: map[string]any{}}
		ns.SetName(namespace(i))
		d.open(ns, namespaceKey{}, ledger{})
	}
	start := time.Now()
	listen := func(i int, after time.Duration) {
		d.listen(t.Context(), namespace(i), start.Add(after), func(namespaceKey, *unstructured.Unstructured) {})
	}
	silent := func() []int {
		var out []int
		for i := range maxListening + 1 {
			if !d.listens(namespace(i)) {
				out = append(out, i)
			}
		}
		return out
	}
	for i := range maxListening {
		listen(i, time.Duration(i)*time.Millisecond)
	}
	late := maxListening
	listen(late, time.Second)
	if diff := cmp.Diff([]int{late}, silent()); diff != "" {
		t.Errorf("not listened to with one too many (-want +got):\n%s", diff)
	}
	listen(0, 2*time.Second)
	listen(late, listenAtLeast+10*time.Millisecond)
	if diff := cmp.Diff([]int{1}, silent()); diff != "" {
		t.Errorf("not listened to once the quietest is quiet enough (-want +got):\n%s", diff)
	}
	d.hush(start.Add(listenFor + time.Second))
	want := []int{}
	for i := range maxListening {
		if i != 0 {
			want = append(want, i)
		}
	}
	if diff := cmp.Diff(want, silent()); diff != "" {
		t.Errorf("not listened to after a while (-want +got):\n%s", diff)
	}
	d.close(namespace(0))
	if d.listens(namespace(0)) {
		t.Error("a namespace that was closed is listened to")
	}
}
