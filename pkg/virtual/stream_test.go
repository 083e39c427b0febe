package virtual

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/server/pki"
)

const (
	configMaps  = "/clusters/*/api/v1/configmaps"
	secrets     = "/clusters/*/api/v1/secrets"
	pods        = "/clusters/*/api/v1/pods"
	assignmentz = "/clusters/*/apis/scheduling.kcp.io/v1alpha1/assignments"
)

// TestAssignmentsDecideWhatAStreamShows follows one target and one other through
// assignments that come and go.
func TestAssignmentsDecideWhatAStreamShows(t *testing.T) {
	w := newWorld(t)
	east, west := w.register("east"), w.register("west")
	w.put("configmaps", obj("ConfigMap", "c1", "ns", "a"))
	w.put("configmaps", obj("ConfigMap", "c1", "other", "a"))
	w.put("configmaps", obj("ConfigMap", "c2", "ns", "a"))
	w.put("configmaps", obj("ConfigMap", "c1", "ns", "kube-root-ca.crt"))
	first := w.put("assignments", assignment("c1", "ns", east))

	e, o := w.stream(east.base+configMaps).sync(), w.stream(west.base+configMaps).sync()
	if diff := cmp.Diff([]string{"c1|ns/a"}, e.keys()); diff != "" {
		t.Errorf("initial state of east (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string(nil), o.keys()); diff != "" {
		t.Errorf("initial state of west (-want +got):\n%s", diff)
	}

	w.put("configmaps", obj("ConfigMap", "c1", "ns", "b"))
	e.shows("c1|ns/a", "c1|ns/b")

	// A namespace that is handed over has two.
	w.put("assignments", assignment("c1", "ns", west))
	o.shows("c1|ns/a", "c1|ns/b")
	w.put("assignments", assignment("c2", "ns", west))
	o.shows("c1|ns/a", "c1|ns/b", "c2|ns/a")

	w.remove("assignments", first)
	e.shows()
	w.put("configmaps", obj("ConfigMap", "c1", "ns", "a"))
	a := obj("ConfigMap", "c1", "ns", "b")
	w.remove("configmaps", a)
	o.shows("c1|ns/a", "c2|ns/a")

	// What happened to c1/ns meanwhile did not reach east: its next event is this one.
	w.put("assignments", assignment("c1", "other", east))
	e.shows("c1|other/a")
	if diff := cmp.Diff([]string{"ADDED c1|ns/a", "BOOKMARK", "ADDED c1|ns/b", "DELETED c1|ns/a", "DELETED c1|ns/b", "ADDED c1|other/a"}, normalize(e.events)); diff != "" {
		t.Errorf("events of east (-want +got):\n%s", diff)
	}
}

// normalize sorts the two deletions, whose order is free.
func normalize(events []string) []string {
	for i := range len(events) - 1 {
		if strings.HasPrefix(events[i], "DELETED") && strings.HasPrefix(events[i+1], "DELETED") && events[i] > events[i+1] {
			events[i], events[i+1] = events[i+1], events[i]
		}
	}
	return events
}

// TestCutInMidBurst cuts streams while objects and assignments change, and compares a
// fresh stream, an uncut one and a list with what there is.
func TestCutInMidBurst(t *testing.T) {
	w := newWorld(t)
	east, west := w.register("east"), w.register("west")
	uncut := w.stream(east.base + configMaps).sync()
	w.busy = true

	changes := make(chan struct{})
	go func() {
		defer close(changes)
		for n := range 400 {
			ns := fmt.Sprintf("ns%d", n%7)
			cluster := logicalcluster.Name(fmt.Sprintf("c%d", n%3))
			cm := obj("ConfigMap", cluster, ns, fmt.Sprintf("cm%d", n%11), field(fmt.Sprint(n), "data", "n"))
			w.put("configmaps", cm)
			if n%5 == 0 {
				w.remove("configmaps", cm)
			}
			to := []target{east, west}[n%2]
			w.put("assignments", assignment(cluster, ns, to))
			if n%3 == 0 {
				w.remove("assignments", assignment(cluster, ns, to))
			}
		}
		w.put("assignments", assignment("c9", "end", east))
		w.put("configmaps", obj("ConfigMap", "c9", "end", "end"))
	}()
	for n := range 20 {
		cut := w.stream(east.base + configMaps)
		for range 3 + n*2 {
			if !cut.next() {
				t.Fatal("stream ended by itself")
			}
			if cut.synced && n%2 == 0 {
				break
			}
		}
		cut.body.Close()
	}
	<-changes
	w.busy = false
	want := map[string]string{}
	w.mu.Lock()
	for key, cm := range w.objects["configmaps"] {
		if _, ok := w.objects["assignments"][logicalcluster.Key{Cluster: key.Cluster, Namespace: key.Namespace, Name: east.key}]; ok {
			want[key.String()] = cm.GetResourceVersion()
		}
	}
	w.mu.Unlock()
	if len(want) < 10 {
		t.Fatalf("the test leaves %d objects, too few to tell anything", len(want))
	}
	uncut.until("what there is", func() bool { return maps.Equal(want, uncut.held) })
	if diff := cmp.Diff(want, w.stream(east.base+configMaps).sync().held); diff != "" {
		t.Errorf("fresh stream (-want +got):\n%s", diff)
	}
	_, list := w.do("GET", east.base+configMaps, "", "")
	listed := map[string]string{}
	for _, item := range list["items"].([]any) {
		metadata := item.(map[string]any)["metadata"].(map[string]any)
		listed[fmt.Sprintf("%s|%s/%s", metadata["annotations"].(map[string]any)["kcp.io/cluster"], metadata["namespace"], metadata["name"])] = metadata["resourceVersion"].(string)
	}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if list["kind"] != "ConfigMapList" || list["apiVersion"] != "v1" || list["metadata"].(map[string]any)["resourceVersion"] == "" {
		t.Errorf("list is %v %v %v", list["kind"], list["apiVersion"], list["metadata"])
	}
}

func TestLesson19SlowStreamEnds(t *testing.T) {
	w := newWorld(t)
	east := w.register("east")
	w.put("assignments", assignment("c1", "ns", east))
	fast := w.stream(east.base + configMaps).sync()
	h := w.handler.workspaces["syncer"].readyHubs()[0]
	slow := h.open(east.key, true) // nobody reads it
	defer h.remove(slow)
	for n := range queueLength + 2 {
		w.put("configmaps", obj("ConfigMap", "c1", "ns", fmt.Sprintf("cm%d", n)))
		fast.until("the last change", func() bool { return len(fast.held) == n+1 })
	}
	select {
	case <-slow.end:
	default:
		t.Errorf("a stream with %d bursts queued goes on; others may have been dropped", len(slow.queue))
	}
	if len(slow.queue) > queueLength {
		t.Errorf("queue holds %d bursts, limit %d", len(slow.queue), queueLength)
	}
}

// TestFilterChanges has objects whose audience changes.
func TestFilterChanges(t *testing.T) {
	w := newWorld(t)
	east, west := w.register("east"), w.register("west")
	w.put("assignments", assignment("c1", "ns", east))
	w.put("assignments", assignment("c1", "ns", west))
	w.put("pods", obj("Pod", "c1", "ns", "user-pod"))
	w.put("pods", obj("Pod", "c1", "ns", "of-east", labelled(east.key)))
	w.put("pods", obj("Pod", "elsewhere", "ns", "of-east", labelled(east.key)))
	e, o := w.stream(east.base+pods).sync(), w.stream(west.base+pods).sync()
	if diff := cmp.Diff([]string{"c1|ns/of-east", "c1|ns/user-pod", "elsewhere|ns/of-east"}, e.keys()); diff != "" {
		t.Errorf("east (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c1|ns/user-pod"}, o.keys()); diff != "" {
		t.Errorf("west (-want +got):\n%s", diff)
	}
	w.put("pods", obj("Pod", "c1", "ns", "user-pod", labelled(west.key)))
	e.shows("c1|ns/of-east", "elsewhere|ns/of-east")
	w.put("pods", obj("Pod", "c1", "ns", "of-east"))
	o.shows("c1|ns/user-pod", "c1|ns/of-east")
	if diff := cmp.Diff("MODIFIED c1|ns/user-pod", o.events[2]); diff != "" {
		t.Errorf("west's pod changed hands without leaving its view (-want +got):\n%s", diff)
	}
}

func TestWhatIsNeverShown(t *testing.T) {
	w := newWorld(t)
	east, west := w.register("east"), w.register("west")
	w.put("assignments", assignment("c1", "ns", east))
	w.put("assignments", assignment("c1", "ns", west))
	token := w.put("secrets", obj("Secret", "c1", "ns", "token", field("kubernetes.io/service-account-token", "type")))
	w.put("secrets", obj("Secret", "c1", "ns", "mine", field("Opaque", "type")))
	w.put("serviceaccounts", obj("ServiceAccount", "c1", "ns", "default"))
	w.put("serviceaccounts", obj("ServiceAccount", "c1", "ns", "robot"))
	w.put("syncreports", obj("SyncReport", "c1", "ns", west.key+"-x", field(west.key, "spec", "target")))
	w.put("syncreports", obj("SyncReport", "c1", "ns", east.key+"-x", field(east.key, "spec", "target")))
	w.put("endpointslices", obj("EndpointSlice", "c1", "ns", "users"))
	w.put("endpointslices", obj("EndpointSlice", "c1", "ns", "east", labelled(east.key)))
	w.put("endpointslices", obj("EndpointSlice", "c1", "ns", "west", labelled(west.key)))
	for path, want := range map[string][]string{
		secrets:                              {"c1|ns/mine"},
		"/clusters/*/api/v1/serviceaccounts": {"c1|ns/robot"},
		"/clusters/*/apis/workload.kcp.io/v1alpha1/syncreports": {"c1|ns/" + east.key + "-x"},
		"/clusters/*/apis/discovery.k8s.io/v1/endpointslices":   {"c1|ns/east"},
		assignmentz: {"c1|ns/" + east.key},
	} {
		if diff := cmp.Diff(want, w.stream(east.base+path).sync().keys()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	if code, _ := w.do("GET", east.base+"/clusters/c1/api/v1/namespaces/ns/secrets/"+token.GetName(), "", ""); code != 404 {
		t.Errorf("GET of a token Secret: %d, want 404", code)
	}
	for _, path := range []string{"/clusters/*/api/v1/namespaces", "/clusters/*/api/v1/nodes", "/clusters/*/api/v1/events"} {
		if code, status := w.do("GET", east.base+path, "", ""); code == 200 {
			t.Errorf("GET %s: 200 %v, want it refused", path, status)
		}
	}
}

// TestAssignmentsStream shows changes of an Assignment, also of one on its way out.
func TestAssignmentsStream(t *testing.T) {
	w := newWorld(t)
	east := w.register("east")
	a := assignment("c1", "ns", east)
	w.put("assignments", a)
	w.put("configmaps", obj("ConfigMap", "c1", "ns", "a"))
	s := w.stream(east.base + assignmentz).sync()
	objects := w.stream(east.base + configMaps).sync()
	field("2026-01-01T00:00:00Z", "metadata", "deletionTimestamp")(a)
	w.put("assignments", a)
	s.until("the deletion's begin", func() bool { return len(s.events) == 3 })
	w.put("configmaps", obj("ConfigMap", "c1", "ns", "b"))
	objects.shows("c1|ns/a", "c1|ns/b")
	w.remove("assignments", a)
	s.shows()
	objects.shows()
	key := "c1|ns/" + east.key
	if diff := cmp.Diff([]string{"ADDED " + key, "BOOKMARK", "MODIFIED " + key, "DELETED " + key}, s.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestSpecResources(t *testing.T) {
	w := newWorld(t)
	east := w.register("east", "deployments.apps", "configmaps")
	w.put("assignments", assignment("c1", "ns", east))
	w.put("configmaps", obj("ConfigMap", "c1", "ns", "a"))
	w.put("pods", obj("Pod", "c1", "ns", "user-pod"))
	w.put("pods", obj("Pod", "c1", "ns", "mirror", labelled(east.key)))
	w.put("secrets", obj("Secret", "c1", "ns", "s"))
	cms := w.stream(east.base + configMaps).sync()
	cms.shows("c1|ns/a")
	w.stream(east.base + pods).sync().shows("c1|ns/mirror")
	if code, status := w.do("GET", east.base+secrets+start, "", ""); code != 403 {
		t.Errorf("stream of Secrets: %d %v, want 403", code, status)
	}
	for name, want := range map[string]int{"pods/user-pod": 404, "pods/mirror": 200, "secrets/s": 404, "configmaps/a": 200} {
		if code, _ := w.do("GET", east.base+"/clusters/c1/api/v1/namespaces/ns/"+name, "", ""); code != want {
			t.Errorf("GET %s: %d, want %d", name, code, want)
		}
	}
	// Less is allowed: open streams end, new ones are refused.
	w.put("synctargets", obj("SyncTarget", "compute", "", "east", field([]any{map[string]any{"resource": "pods"}}, "spec", "resources")))
	for cms.next() {
	}
	if code, _ := w.do("GET", east.base+configMaps+start, "", ""); code != 403 {
		t.Errorf("stream after the change: %d, want 403", code)
	}
}

func TestStreamStarts(t *testing.T) {
	w := newWorld(t)
	east := w.register("east")
	for name, tc := range map[string]struct {
		query      string
		wantCode   int
		wantReason string
	}{
		"plain watch":         {"?watch=true", 410, "Expired"},
		"from a version":      {"?watch=true&resourceVersion=7&allowWatchBookmarks=true", 410, "Expired"},
		"initial but resumed": {start + "&resourceVersion=7", 410, "Expired"},
		"without bookmarks":   {"?watch=true&sendInitialEvents=true", 410, "Expired"},
		"no number":           {start + "&timeoutSeconds=soon", 400, "BadRequest"},
		"selector":            {start + "&labelSelector=a%3Db", 400, "BadRequest"},
	} {
		t.Run(name, func(t *testing.T) {
			code, status := w.do("GET", east.base+configMaps+tc.query, "", "")
			if code != tc.wantCode || status["reason"] != tc.wantReason || status["kind"] != "Status" {
				t.Errorf("got %d %v, want %d %s", code, status, tc.wantCode, tc.wantReason)
			}
		})
	}
	if code, _ := w.do("GET", east.base+"/clusters/*/api/v1/namespaces/ns/configmaps"+start, "", ""); code != 400 {
		t.Errorf("stream of one namespace: %d, want 400", code)
	}
	if code, _ := w.do("GET", east.base+"/clusters/c1/api/v1/configmaps"+start, "", ""); code != 405 {
		t.Errorf("stream of one cluster: %d, want 405", code)
	}
}

func TestTimeoutEndsStream(t *testing.T) {
	w := newWorld(t)
	east := w.register("east")
	code, frame := w.do("GET", east.base+configMaps+start+"&timeoutSeconds=1", "", "")
	if code != 200 || frame["type"] != "BOOKMARK" {
		t.Errorf("got %d %v, want the bookmark and then the end", code, frame)
	}
}

func TestGatewayStreams(t *testing.T) {
	w := newWorld(t)
	east := w.register("east")
	w.put("ingresses", obj("Ingress", "c1", "ns", "a"))
	// A tenant's own Location leads to a target whose endpoints the tenant chooses.
	w.put("assignments", assignment("c1", "own", east))
	trusted := assignment("c1", "ns", east)
	field("root", "spec", "locationPath")(trusted)
	w.put("assignments", trusted)
	w.put("endpointslices", obj("EndpointSlice", "c1", "ns", "users"))
	w.put("endpointslices", obj("EndpointSlice", "c1", "ns", "mirror", labelled(east.key)))
	w.put("gatewayinstances", obj("GatewayInstance", "root", "", "g1"))
	for path, want := range map[string][]string{
		"networking.k8s.io/v1/ingresses":              {"c1|ns/a"},
		"scheduling.kcp.io/v1alpha1/assignments":      {"c1|ns/" + east.key},
		"discovery.k8s.io/v1/endpointslices":          {"c1|ns/mirror"},
		"networking.kcp.io/v1alpha1/gatewayinstances": {"root|g1"},
	} {
		if diff := cmp.Diff(want, w.stream("/services/gateway/clusters/*/apis/"+path, pki.GatewayGroup).sync().keys()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	if code, _ := w.do("GET", "/services/gateway"+secrets+start, "", "", "system:masters"); code != 404 {
		t.Errorf("stream of secrets: %d, want 404: gateways need none", code)
	}
	w.put("ingresses", obj("Ingress", "c2", "ns", "a"))
	w.stream("/services/gateway/clusters/*/apis/networking.k8s.io/v1/ingresses", pki.GatewayGroup).shows("c1|ns/a", "c2|ns/a")
	if code, _ := w.do("GET", "/services/gateway/clusters/*/apis/networking.k8s.io/v1/ingresses"+start, "", "", "system:authenticated"); code != 403 {
		t.Errorf("stream by a tenant: %d, want 403", code)
	}
}

// TestEncodedFrames looks at the bytes of one frame.
func TestEncodedFrames(t *testing.T) {
	w := newWorld(t)
	east := w.register("east")
	w.put("assignments", assignment("c1", "ns", east))
	cm := obj("", "c1", "ns", "a", field("v", "data", "k"))
	delete(cm.Object, "kind")
	w.put("configmaps", cm)
	s := w.stream(east.base + configMaps)
	s.lines.Scan()
	want := `{"type":"ADDED","object":{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"annotations":{"kcp.io/cluster":"c1"},"name":"a","namespace":"ns","resourceVersion":"3","uid":"uid-3"}}}`
	if diff := cmp.Diff(want, s.lines.Text()); diff != "" {
		t.Errorf("frame (-want +got):\n%s", diff)
	}
	i := w.handler.config.Informers.Unstructured(w.handler.workspaces["syncer"].readyHubs()[0].resource.gvr)
	held, _ := i.Get("c1", "ns", "a")
	if held.Object["kind"] != nil {
		t.Errorf("encoding has changed the informer's object to %v", held.Object)
	}
}

func TestEncodeDropsManagedFields(t *testing.T) {
	cm := obj("ConfigMap", "c1", "ns", "a", field([]any{map[string]any{"manager": "kubectl"}}, "metadata", "managedFields"))
	before := cm.DeepCopy()
	got, err := encode(&resource{gvr: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, kind: "ConfigMap"}, cm)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"kcp.io/cluster":"c1"},"name":"a","namespace":"ns"}}`, string(got)); diff != "" {
		t.Errorf("encoded (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, cm); diff != "" {
		t.Errorf("encoding has changed the object:\n%s", diff)
	}
}

func TestEncodesOncePerEvent(t *testing.T) {
	i := &item{resource: &resource{kind: "ConfigMap"}, obj: obj("ConfigMap", "c1", "ns", "a")}
	one, err := i.encode()
	if err != nil {
		t.Fatal(err)
	}
	two, err := i.encode()
	if err != nil {
		t.Fatal(err)
	}
	if &one[0] != &two[0] {
		t.Error("encoded twice")
	}
}

// TestStreamTimeout: the client sets an end, within what the server allows.
func TestStreamTimeout(t *testing.T) {
	for seconds, want := range map[string]struct {
		min, max time.Duration
		err      bool
	}{
		"":           {min: minStream, max: maxStream},
		"0":          {min: minStream, max: maxStream},
		"1":          {min: time.Second, max: time.Second},
		"3600":       {min: time.Hour, max: time.Hour},
		"3601":       {min: maxStream, max: maxStream},
		"2147483647": {min: maxStream, max: maxStream},
		"2147483648": {err: true},
		"-1":         {err: true},
		"soon":       {err: true},
	} {
		t.Run(seconds, func(t *testing.T) {
			got, err := streamTimeout(map[string][]string{"timeoutSeconds": {seconds}})
			if (err != nil) != want.err || got < want.min || got > want.max {
				t.Errorf("got %s, %v; want %s to %s, error %v", got, err, want.min, want.max, want.err)
			}
		})
	}
}
