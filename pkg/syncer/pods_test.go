package syncer

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/transform"
)

// ask sends a request through the tunnel and returns the code and the Status' message.
func (w *world) ask(method, path string) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, "http://us-east1"+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.vw.tunnels.Transport("tenant").RoundTrip(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	status := metav1.Status{}
	if json.Unmarshal(b, &status) != nil {
		return resp.StatusCode, string(b)
	}
	return resp.StatusCode, status.Message
}

// There is no kubelet here. That the physical API server says so shows that a request
// got through, with rights that suffice.
const noKubelet = "does not have a host assigned"

// TestTunnelAllowsPodsOfTheTenantOnly asks for much, most of which must be refused.
func TestTunnelAllowsPodsOfTheTenantOnly(t *testing.T) {
	w := deployed(t)
	pod := w.pods()[0].Name
	// Somebody else's, in the same physical cluster.
	other, err := w.kube.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo.local/app:v1"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("the tunnel is open", func() bool { return w.vw.tunnels.Check("us-east1", "tenant") == nil })
	const shop = "/clusters/cluster1/namespaces/shop/pods/"
	cases := map[string]struct {
		method, path string
		wantCode     int
		want         string
	}{
		"Log":                     {"GET", shop + pod + "/log", 204, ""},
		"Exec":                    {"POST", shop + pod + "/exec?command=x&stdout=true", 400, noKubelet},
		"ExecByGet":               {"GET", shop + pod + "/exec?command=x&stdout=true", 400, noKubelet},
		"Attach":                  {"POST", shop + pod + "/attach?stdout=true", 400, noKubelet},
		"PortForward":             {"POST", shop + pod + "/portforward", 400, noKubelet},
		"LogByPost":               {"POST", shop + pod + "/log", 405, "POST is not supported"},
		"ExecByDelete":            {"DELETE", shop + pod + "/exec", 405, "DELETE is not supported"},
		"Proxy":                   {"GET", shop + pod + "/proxy", 405, "GET is not supported"},
		"Eviction":                {"POST", shop + pod + "/eviction", 405, "POST is not supported"},
		"Status":                  {"PUT", shop + pod + "/status", 405, "PUT is not supported"},
		"ThePodItself":            {"GET", shop + pod, 403, "nothing but the subresources of pods"},
		"DeleteThePod":            {"DELETE", shop + pod, 403, "nothing but the subresources of pods"},
		"Secrets":                 {"GET", "/api/v1/namespaces/default/secrets", 403, "nothing but the subresources of pods"},
		"TheAPI":                  {"POST", "/api/v1/namespaces/default/pods/" + other.Name + "/exec", 403, "nothing but the subresources of pods"},
		"SubresourceBelow":        {"GET", shop + pod + "/log/x", 403, "nothing but the subresources of pods"},
		"AnotherTenant":           {"GET", "/clusters/cluster2/namespaces/shop/pods/" + pod + "/log", 403, "is not assigned to this cluster"},
		"AnotherNamespace":        {"GET", "/clusters/cluster1/namespaces/default/pods/" + other.Name + "/log", 403, "is not assigned to this cluster"},
		"TheDownstreamNamespace":  {"GET", "/clusters/cluster1/namespaces/" + w.namespace + "/pods/" + pod + "/log", 403, "is not assigned to this cluster"},
		"NoSuchPod":               {"GET", shop + "none/log", 404, `pods "none" not found`},
		"APodOfAnotherNamespace":  {"GET", shop + other.Name + "/log", 404, "not found"},
		"ThePodsNameInWorkspace":  {"GET", shop + names.Mirror(w.id.targetKey, pod) + "/log", 404, "not found"},
		"APathInTheNamespace":     {"GET", "/clusters/cluster1/namespaces/shop%2F..%2Fdefault/pods/" + pod + "/log", 400, "no such names"},
		"APathInThePod":           {"GET", shop + "..%2F..%2F..%2Fdefault%2Fpods%2F" + other.Name + "/log", 400, "no such names"},
		"APathInTheSubresource":   {"GET", shop + pod + "/log%2F..%2Fexec", 405, "GET is not supported"},
		"AQueryInThePod":          {"GET", shop + pod + "%3Fx/log", 400, "no such names"},
		"AnotherTargetsNamespace": {"GET", "/clusters/Cluster1/namespaces/shop/pods/" + pod + "/log", 400, "no such names"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			code, message := w.ask(tc.method, tc.path)
			if code != tc.wantCode || !strings.Contains(message, tc.want) {
				t.Errorf("%s %s: %d %q, want %d with %q", tc.method, tc.path, code, message, tc.wantCode, tc.want)
			}
		})
	}
}

// TestTunnelForgedNamespace has somebody in the physical cluster change what says whose
// a namespace is.
func TestTunnelForgedNamespace(t *testing.T) {
	w := deployed(t)
	path := "/clusters/cluster1/namespaces/shop/pods/" + w.pods()[0].Name + "/exec?command=x&stdout=true"
	w.eventually("the pod is reached", func() bool {
		code, message := w.ask("POST", path)
		return code == 400 && strings.Contains(message, noKubelet)
	})
	forge := func(change func(ns *unstructured.Unstructured)) {
		t.Helper()
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			ns := w.downstreamNamespace()
			change(ns)
			_, err := w.admin.Resource(namespacesGVR).Update(t.Context(), ns, metav1.UpdateOptions{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	genuine := w.downstreamNamespace().GetAnnotations()
	forge(func(ns *unstructured.Unstructured) {
		ns.SetAnnotations(map[string]string{names.SourceAnnotation: names.Source{Cluster: "cluster2", Namespace: "shop"}.Annotation()})
	})
	w.eventually("a namespace of another tenant by its annotation is refused", func() bool {
		code, message := w.ask("POST", path)
		return code == 403 && strings.Contains(message, "is not its copy")
	})
	if code, message := w.ask("POST", strings.Replace(path, "cluster1", "cluster2", 1)); code != 403 {
		t.Errorf("the tenant whom the annotation names: %d %q, want 403", code, message)
	}
	forge(func(ns *unstructured.Unstructured) { ns.SetAnnotations(genuine) })
	w.eventually("the pod is reached again", func() bool {
		_, message := w.ask("POST", path)
		return strings.Contains(message, noKubelet)
	})
}

// The tunnel comes back when the server was away, and only the leader holds one.
func TestTunnelComesBack(t *testing.T) {
	w := deployed(t)
	connected := func() bool { return w.vw.tunnels.Check("us-east1", "tenant") == nil }
	w.eventually("the tunnel is open", connected)
	w.vw.setDown(true)
	w.eventually("it ends with the server", func() bool { return !connected() })
	w.vw.setDown(false)
	w.eventually("it is open again", connected)
	w.stop()
	w.eventually("it ends with the syncer", func() bool { return !connected() })
}

func owners(obj *unstructured.Unstructured) []string {
	var out []string
	for _, ref := range obj.GetOwnerReferences() {
		out = append(out, fmt.Sprintf("%s %s %s", ref.Kind, ref.Name, ref.UID))
	}
	return out
}

func TestMirrorReplicaSets(t *testing.T) {
	w := deployed(t)
	mirrored := func() map[string]*unstructured.Unstructured {
		out := map[string]*unstructured.Unstructured{}
		for _, rs := range w.vw.list("replicasets") {
			out[rs.GetAnnotations()["deployment.kubernetes.io/revision"]] = rs
		}
		return out
	}
	w.eventually("the replica set is mirrored", func() bool {
		replicas, _, _ := unstructured.NestedInt64(mirrored()["1"].Object, "status", "replicas")
		return replicas == 2
	})
	first, deployment := mirrored()["1"], w.upstream("deployments", "web")
	if diff := cmp.Diff([]string{"Deployment web " + string(deployment.GetUID())}, owners(first)); diff != "" {
		t.Errorf("owner (-want +got):\n%s", diff)
	}
	for key := range first.GetAnnotations() {
		// kubectl rollout undo makes these the Deployment's.
		if strings.Contains(key, "workload.kcp.io") {
			t.Errorf("the mirror has annotation %s", key)
		}
	}
	w.eventually("the pods belong to the mirror", func() bool {
		list := w.vw.list("pods")
		for _, p := range list {
			if !cmp.Equal(owners(p), []string{"ReplicaSet " + first.GetName() + " " + string(first.GetUID())}) {
				return false
			}
		}
		return len(list) == 2
	})

	w.put("deployments", strings.Replace(web(2), "app:v1", "app:v2", 1))
	w.eventually("a second revision is mirrored", func() bool { return mirrored()["2"] != nil })
	w.put("deployments", web(3))
	w.eventually("going back makes the first the third", func() bool {
		rs := mirrored()["3"]
		replicas, _, _ := unstructured.NestedInt64(objectOf(rs), "spec", "replicas")
		return rs != nil && rs.GetName() == first.GetName() && replicas == 3
	})
	w.vw.remove("deployments", tenantCluster, tenantNamespace, "web")
	w.eventually("mirrors go with the Deployment", func() bool { return len(w.vw.list("replicasets")) == 0 && len(w.vw.list("pods")) == 0 })
}

func objectOf(obj *unstructured.Unstructured) map[string]any {
	if obj == nil {
		return nil
	}
	return obj.Object
}

// TestMirrorEvents has an event about a pod that repeats, one about nothing of the
// tenant's, and one in a foreign namespace.
func TestMirrorEvents(t *testing.T) {
	w := deployed(t)
	pod := w.pods()[0]
	w.eventually("the pod is mirrored", func() bool { return w.upstream("pods", names.Mirror(w.id.targetKey, pod.Name)) != nil })
	mirror := w.upstream("pods", names.Mirror(w.id.targetKey, pod.Name))
	now := metav1.Now()
	event := func(namespace, name, involved, message string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: namespace},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: involved},
			Reason:         "Failed", Message: message, Type: corev1.EventTypeWarning,
			Source:         corev1.EventSource{Component: "kubelet", Host: "node-7"},
			FirstTimestamp: now, LastTimestamp: now, Count: 1,
		}
	}
	create := func(e *corev1.Event) *corev1.Event {
		t.Helper()
		created, err := w.kube.CoreV1().Events(e.Namespace).Create(t.Context(), e, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + w.id.targetKey}}
	if _, err := w.kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	unrelated := "unrelated-" + w.id.targetKey
	create(event("default", unrelated, pod.Name, "none of the tenant's business"))
	create(event(w.namespace, "nobody", "nobody", "about a pod that is not there"))
	original := create(event(w.namespace, pod.Name+".1", pod.Name, "cannot pull for "+w.namespace+"/"+pod.Name+" on "+node.Name+": no such image"))
	name := names.Event(w.id.targetKey, mirror.GetName(), string(original.UID))
	w.eventually("the event is mirrored", func() bool { return w.upstream("events", name) != nil })
	got := w.upstream("events", name)
	want := map[string]any{
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": mirror.GetName(), "uid": string(mirror.GetUID())},
		"message":        "cannot pull for shop/" + mirror.GetName() + " on a node: no such image",
		"reason":         "Failed", "type": "Warning", "count": float64(1),
		"source": map[string]any{"component": "kubelet"},
	}
	have := map[string]any{}
	for field := range want {
		have[field] = got.Object[field]
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("mirrored event (-want +got):\n%s", diff)
	}
	for _, e := range w.vw.list("events") {
		if m, _, _ := unstructured.NestedString(e.Object, "message"); strings.Contains(m, "business") || strings.Contains(m, "not there") {
			t.Errorf("an event that is not the tenant's was mirrored: %q", m)
		}
	}

	original.Count = 5
	if _, err := w.kube.CoreV1().Events(w.namespace).Update(t.Context(), original, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the event that repeats is the same one", func() bool {
		return w.upstream("events", name).Object["count"] == float64(5)
	})
	if transform.LastSeen(original).IsZero() {
		t.Error("an event without a time")
	}
}
