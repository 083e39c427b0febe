package hostclaim

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer/informertest"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/reconciler/events"
)

// api is a server that keeps objects by path, and notes each request.
type api struct {
	mu       sync.Mutex
	objects  map[string][]byte
	requests []string
	// broken is what the path of requests that fail contains.
	broken string
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := "event"
	if strings.Contains(r.URL.Path, "/hostclaims") {
		kind = "claim"
	}
	a.requests = append(a.requests, r.Method+" "+kind)
	w.Header().Set("Content-Type", "application/json")
	body, _ := io.ReadAll(r.Body)
	if r.Header.Get("Content-Type") == runtime.ContentTypeProtobuf {
		obj, _, _ := kubescheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		body, _ = json.Marshal(obj)
	}
	path := r.URL.Path
	if r.Method == http.MethodPost {
		var meta metav1.PartialObjectMetadata
		if err := json.Unmarshal(body, &meta); err == nil {
			path += "/" + meta.Name
		}
	}
	old, exists := a.objects[path]
	switch {
	case a.broken != "" && strings.Contains(path, a.broken):
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500}`))
		return
	case r.Method == http.MethodDelete:
		delete(a.objects, path)
	case r.Method == http.MethodGet && !exists:
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
		return
	case r.Method == http.MethodGet:
		body = old
	default:
		a.objects[path] = body
	}
	_, _ = w.Write(body)
}

// take returns the requests since the last call.
func (a *api) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.requests
	a.requests = nil
	return out
}

func ingress(cluster logicalcluster.Name, uid types.UID, created time.Time, hosts ...string) *unstructured.Unstructured {
	rules := []any{}
	for _, h := range hosts {
		rules = append(rules, map[string]any{"host": h})
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": map[string]any{"rules": rules}}}
	obj.SetName("web")
	obj.SetNamespace("n")
	obj.SetUID(uid)
	obj.SetCreationTimestamp(metav1.NewTime(created))
	obj.SetAnnotations(map[string]string{logicalcluster.AnnotationKey: string(cluster)})
	return obj
}

// TestEventWhenTheVerdictChanges: an Event costs something when there is news, and
// nothing while the trouble lasts.
func TestEventWhenTheVerdictChanges(t *testing.T) {
	server := &api{objects: map[string][]byte{}}
	front := httptest.NewServer(server)
	defer front.Close()
	c, err := clients.New(&rest.Config{Host: front.URL})
	if err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	first := ingress("a", "a1", clock.Now(), host, other)
	obj := ingress("b", "b1", clock.Now().Add(time.Minute), host)
	ingresses, ingressFeed := informertest.New(t, obj, first, obj)
	claims, claimFeed := informertest.New(t, &networkingv1alpha1.HostClaim{})
	controller := &Controller{
		deps: Deps{Clients: c, Clock: clock}, ingresses: ingresses, claims: claims,
		events: &events.Recorder{Clients: c, Clock: clock, Component: component},
	}
	controller.loop = reconciler.New[logicalcluster.Key]("test", controller)
	controller.seed()
	key := logicalcluster.KeyOf(obj)
	look := func(what string, want ...string) {
		t.Helper()
		result, err := controller.Reconcile(t.Context(), key)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if result != (reconciler.Result{}) {
			t.Errorf("%s: looks again after %s, want only events to have it look", what, result.RequeueAfter)
		}
		if diff := cmp.Diff(want, server.take()); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", what, diff)
		}
		claim := &networkingv1alpha1.HostClaim{}
		if err := json.Unmarshal(server.objects["/clusters/b/apis/networking.kcp.io/v1alpha1/namespaces/n/hostclaims/web"], claim); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		claim.Annotations = map[string]string{logicalcluster.AnnotationKey: "b"}
		claimFeed.Put(claim)
	}

	server.broken = "/events"
	if _, err := controller.Reconcile(t.Context(), key); err == nil {
		t.Error("an Event that cannot be written: no error")
	}
	if diff := cmp.Diff([]string{"GET event"}, server.take()); diff != "" {
		t.Errorf("when an Event cannot be written, requests (-want +got):\n%s", diff)
	}
	server.broken = ""
	look("the host is taken", "GET event", "POST event", "POST claim")
	look("nothing has changed")
	clock.Step(time.Hour)
	obj = obj.DeepCopy()
	obj.SetLabels(map[string]string{"a": "b"})
	ingressFeed.Put(obj)
	look("the Ingress has changed, the verdict has not")

	obj = ingress("b", "b1", obj.GetCreationTimestamp().Time, host, other)
	ingressFeed.Put(obj)
	look("another host is taken", "GET event", "PUT event", "PUT claim")
	obj = ingress("b", "b2", obj.GetCreationTimestamp().Time, host, other)
	ingressFeed.Put(obj)
	look("the Ingress was made anew", "GET event", "POST event", "PUT claim")
	ingressFeed.Delete(first)
	controller.note(logicalcluster.KeyOf(first))
	look("the hosts are free", "DELETE event", "PUT claim")
	look("and stay so")
}
