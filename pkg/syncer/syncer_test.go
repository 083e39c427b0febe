package syncer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
)

const (
	settings = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue}`
	password = `
apiVersion: v1
kind: Secret
metadata: {name: password}
data: {p: czNjcjN0}`
	service = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: ClusterIP, selector: {app: web}, ports: [{name: http, protocol: TCP, port: 80, targetPort: 8080}]}`
)

func web(replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "demo.local/app:v1"}]}`, replicas)
}

// deployed returns a world where the tenant's application has been applied.
func deployed(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.put("configmaps", settings)
	w.put("secrets", password)
	w.put("services", service)
	w.put("deployments", web(2))
	w.assign()
	w.start()
	w.eventually("the application is there", func() bool {
		uids := w.uids()
		return uids["configmaps/settings"] != "" && uids["secrets/password"] != "" && uids["services/web"] != "" && len(w.pods()) == 2
	})
	return w
}

// pods returns the pods that the physical cluster made.
func (w *world) pods() []corev1.Pod {
	w.t.Helper()
	list, err := w.kube.CoreV1().Pods(w.namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// setReady plays the kubelet.
func (w *world) setReady(pod corev1.Pod, number int, ready bool) {
	w.t.Helper()
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	if ready {
		condition.Status = corev1.ConditionTrue
	}
	client := w.kube.CoreV1().Pods(w.namespace)
	// Endpoints are made of pods on nodes only.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + w.id.targetKey}}
	if _, err := w.kube.CoreV1().Nodes().Create(w.t.Context(), node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}
	if err := client.Bind(w.t.Context(), binding, metav1.CreateOptions{}); err != nil && !apierrors.IsConflict(err) {
		w.t.Fatal(err)
	}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := client.Get(w.t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Status.Phase = corev1.PodRunning
		current.Status.PodIP = fmt.Sprintf("10.1.1.%d", number)
		current.Status.PodIPs = []corev1.PodIP{{IP: current.Status.PodIP}}
		current.Status.HostIP = "10.9.9.9"
		current.Status.HostIPs = []corev1.HostIP{{IP: current.Status.HostIP}}
		current.Status.Conditions = []corev1.PodCondition{condition}
		_, err = client.UpdateStatus(w.t.Context(), current, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestDownstreamCopies(t *testing.T) {
	w := deployed(t)
	ns := w.downstreamNamespace()
	if got := ns.GetLabels()[names.SyncerLabel]; got != w.id.instanceID {
		t.Errorf("label of the namespace = %q, want %q", got, w.id.instanceID)
	}
	if diff := cmp.Diff(`{"cluster":"cluster1","namespace":"shop"}`, ns.GetAnnotations()[names.SourceAnnotation]); diff != "" {
		t.Errorf("source annotation (-want +got):\n%s", diff)
	}
	d := w.downstream(deployments, "web")
	if got := d.GetAnnotations()[names.GenerationAnnotation]; got != "1" {
		t.Errorf("generation annotation = %q, want 1", got)
	}
	template := field(d, "spec", "template", "metadata")
	if diff := cmp.Diff(map[string]any{"labels": map[string]any{"app": "web"}}, template); diff != "" {
		t.Errorf("the pod template's metadata (-want +got):\n%s", diff)
	}
	// What is not synced.
	w.put("configmaps", `{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-root-ca.crt}, data: {ca.crt: wrong}}`)
	w.put("configmaps", strings.Replace(settings, "blue", "red", 1))
	w.eventually("the change is applied", func() bool { return field(w.downstream(configMaps, "settings"), "data", "color") == "red" })
	if got := field(w.downstream(configMaps, "kube-root-ca.crt"), "data", "ca.crt"); got == "wrong" {
		t.Error("the cluster's own kube-root-ca.crt was overwritten")
	}
}

func TestGenerations(t *testing.T) {
	observes, plain := resources.Resource{Kind: "Deployment", Observes: true}, resources.Pods
	copyOf := func(applied, generation, observed int64) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{Object: map[string]any{}}
		obj.SetGeneration(generation)
		obj.SetAnnotations(map[string]string{names.GenerationAnnotation: fmt.Sprint(applied), names.SourceUIDAnnotation: "u"})
		if observed >= 0 {
			_ = unstructured.SetNestedField(obj.Object, observed, "status", "observedGeneration")
		}
		return obj
	}
	other := copyOf(3, 1, 1)
	other.SetAnnotations(map[string]string{names.GenerationAnnotation: "3", names.SourceUIDAnnotation: "earlier"})
	source := &unstructured.Unstructured{Object: map[string]any{}}
	source.SetUID("u")
	source.SetGeneration(9)
	cases := map[string]struct {
		observes              bool
		copy                  *unstructured.Unstructured
		wantApplied, wantSeen int64
	}{
		"NoCopy":             {true, nil, 0, 0},
		"SeenByControllers":  {true, copyOf(7, 2, 2), 7, 7},
		"NotYetSeen":         {true, copyOf(7, 2, 1), 7, 0},
		"NoStatusYet":        {true, copyOf(7, 2, -1), 7, 0},
		"KindWithoutField":   {false, copyOf(7, 2, -1), 7, 7},
		"KindWithOldField":   {false, copyOf(7, 2, 1), 7, 0},
		"MadeOfEarlierOne":   {true, other, 0, 0},
		"FinishedSomewhere":  {false, source, 9, 9},
		"HigherThanSource":   {true, copyOf(7, 2, 3), 7, 7},
		"SourceWithoutField": {false, copyOf(0, 0, -1), 0, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := plain
			if tc.observes {
				r = observes
			}
			applied, seen := generations(r, source, tc.copy)
			if applied != tc.wantApplied || seen != tc.wantSeen {
				t.Errorf("generations() = %d, %d, want %d, %d", applied, seen, tc.wantApplied, tc.wantSeen)
			}
		})
	}
}

func TestLesson27FailureIsReported(t *testing.T) {
	w := newWorld(t)
	w.assign()
	w.start()
	bad := strings.Replace(service, "targetPort: 8080", "targetPort: 99999", 1)
	w.put("services", bad)
	w.eventually("the report says what is wrong", func() bool {
		return field(w.report("services", "", "web"), "report", "synced") == false
	})
	message, _ := field(w.report("services", "", "web"), "report", "message").(string)
	if !strings.Contains(message, "targetPort") || strings.Contains(message, w.namespace) {
		t.Errorf("message = %q, want one that names targetPort and not %q", message, w.namespace)
	}
	// The server tells the tenant by an event; the syncer writes none of its own.
	if n := w.vw.requested("POST events"); n != 0 {
		t.Errorf("the syncer wrote %d events", n)
	}
	w.put("services", service)
	w.eventually("the report has gone with the failure", func() bool { return w.report("services", "", "web") == nil })
}

func TestLesson24DriftIsRepaired(t *testing.T) {
	w := deployed(t)
	client := w.kube.CoreV1().ConfigMaps(w.namespace)
	patch := `{"data":{"color":"green","more":"kept"}}`
	if _, err := client.Patch(t.Context(), "settings", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "someone"}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the changed field is put right", func() bool { return field(w.downstream(configMaps, "settings"), "data", "color") == "blue" })
	if got := field(w.downstream(configMaps, "settings"), "data", "more"); got != "kept" {
		t.Errorf("another writer's field = %v, want kept", got)
	}
	if err := client.Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the deleted object is back", func() bool { return w.downstream(configMaps, "settings") != nil })
	if w.upstream("configmaps", "settings") == nil {
		t.Error("the tenant's object is gone")
	}
}

func TestDeletionIsFollowed(t *testing.T) {
	w := deployed(t)
	w.eventually("there is a report", func() bool { return w.report("deployments", "apps", "web") != nil })
	w.vw.remove("deployments", tenantCluster, tenantNamespace, "web")
	w.eventually("the copy, its pods, mirrors and report are gone", func() bool {
		return w.downstream(deployments, "web") == nil && len(w.pods()) == 0 && len(w.vw.list("pods")) == 0 && w.report("deployments", "apps", "web") == nil
	})
	if w.downstream(configMaps, "settings") == nil {
		t.Error("another object is gone, too")
	}
}

// A stream that ends, or comes back with a hole, is no reason to delete anything.
func TestLesson14NothingIsDeletedWithoutProof(t *testing.T) {
	w := deployed(t)
	before := w.uids()
	marker := 0
	synced := func() {
		t.Helper()
		marker++
		name := fmt.Sprintf("marker-%d", marker)
		w.put("services", strings.ReplaceAll(service, "name: web", "name: "+name))
		w.eventually("the syncer is back at work", func() bool { return w.downstream(gvr("", "v1", "services"), name) != nil })
		w.vw.remove("services", tenantCluster, tenantNamespace, name)
		w.eventually("the marker is gone", func() bool { return w.downstream(gvr("", "v1", "services"), name) == nil })
	}
	synced()
	w.vw.setDown(true)
	w.vw.setDown(false)
	synced()
	if diff := cmp.Diff(before, w.uids()); diff != "" {
		t.Errorf("after the server was away (-before +after):\n%s", diff)
	}
	w.vw.hide(func(resource string, _ *unstructured.Unstructured) bool {
		return resource == "configmaps" || resource == "deployments"
	})
	synced()
	if diff := cmp.Diff(before, w.uids()); diff != "" {
		t.Errorf("after streams without objects (-before +after):\n%s", diff)
	}
	gets := w.vw.requested("GET assignments")
	w.vw.hide(func(resource string, _ *unstructured.Unstructured) bool { return resource == "assignments" })
	w.eventually("the syncer asks after its assignment", func() bool { return w.vw.requested("GET assignments") > gets })
	w.vw.hide(nil)
	synced()
	if diff := cmp.Diff(before, w.uids()); diff != "" {
		t.Errorf("after a stream without assignments (-before +after):\n%s", diff)
	}
}

func TestRestartWritesNothing(t *testing.T) {
	w := deployed(t)
	w.eventually("all is reported", func() bool {
		return field(w.report("deployments", "apps", "web"), "report", "observedGeneration") == int64(1) && len(w.vw.list("pods")) == 2
	})
	before, versions := w.uids(), w.versions()
	w.stop()
	applied := w.applied.Load()
	writes := w.vw.requested("POST pods") + w.vw.requested("PUT pods") + w.vw.requested("POST syncreports")
	w.start()
	w.put("services", strings.ReplaceAll(service, "name: web", "name: later"))
	w.eventually("the syncer is back at work", func() bool { return w.downstream(gvr("", "v1", "services"), "later") != nil })
	if got := w.applied.Load() - applied; got != 1 {
		t.Errorf("the restart applied %d objects, want the new one only", got)
	}
	after := w.uids()
	delete(after, "services/later")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("uids (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(versions, w.versions()); diff != "" {
		t.Errorf("resource versions (-before +after):\n%s", diff)
	}
	if got := w.vw.requested("POST pods") + w.vw.requested("PUT pods") + w.vw.requested("POST syncreports"); got != writes {
		t.Errorf("the restart wrote %d mirrors and reports", got-writes)
	}
}

// versions returns the resource versions of what the syncer applied.
func (w *world) versions() map[string]string {
	out := map[string]string{}
	for what, obj := range map[string]*unstructured.Unstructured{
		"configmap":  w.downstream(configMaps, "settings"),
		"deployment": w.downstream(deployments, "web"),
		"service":    w.downstream(gvr("", "v1", "services"), "web"),
	} {
		out[what] = obj.GetResourceVersion()
	}
	return out
}

func TestUnassigned(t *testing.T) {
	t.Run("AssignmentDeleted", func(t *testing.T) {
		w := deployed(t)
		w.eventually("reports and mirrors are there", func() bool {
			return len(w.vw.list("syncreports")) > 0 && len(w.vw.list("pods")) == 2 && len(w.vw.list("endpointslices")) > 0
		})
		w.vw.remove("assignments", tenantCluster, tenantNamespace, w.id.targetKey)
		w.eventually("the assignment is released", func() bool { return w.upstream("assignments", w.id.targetKey) == nil })
		if w.downstreamNamespace() != nil {
			t.Error("the assignment was released before the namespace was gone")
		}
		for _, resource := range []string{"syncreports", "pods", "endpointslices"} {
			if left := w.vw.list(resource); len(left) > 0 {
				t.Errorf("%d %s are left in the workspace", len(left), resource)
			}
		}
		if w.upstream("deployments", "web") == nil {
			t.Error("the tenant's object is gone")
		}
	})
	t.Run("GoneWhileAway", func(t *testing.T) {
		w := deployed(t)
		w.stop()
		assignment := w.upstream("assignments", w.id.targetKey).DeepCopy()
		assignment.SetFinalizers(nil)
		w.vw.put("assignments", assignment)
		w.vw.remove("assignments", tenantCluster, tenantNamespace, w.id.targetKey)
		w.start()
		w.eventually("the namespace is gone", func() bool { return w.downstreamNamespace() == nil })
	})
}

// When its SyncTarget is gone the syncer removes its own namespaces, and nothing that
// only looks like one.
func TestLesson29Retired(t *testing.T) {
	w := deployed(t)
	w.stop()
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "kept-" + w.id.targetKey, Labels: map[string]string{names.SyncerLabel: w.id.instanceID},
	}}
	if _, err := w.kube.CoreV1().Namespaces().Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.vw.mu.Lock()
	w.vw.retired = true
	w.vw.mu.Unlock()
	w.start()
	w.eventually("the namespace is gone", func() bool { return w.downstreamNamespace() == nil })
	if ns, err := w.kube.CoreV1().Namespaces().Get(t.Context(), other.Name, metav1.GetOptions{}); err != nil || ns.DeletionTimestamp != nil {
		t.Errorf("a namespace that is no copy was deleted: %v", err)
	}
}

func TestFinishedJobIsNotRunAgain(t *testing.T) {
	w := newWorld(t)
	w.put("jobs", `
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
status: {succeeded: 1, conditions: [{type: Complete, status: "True"}]}`)
	w.put("configmaps", settings)
	w.assign()
	w.start()
	w.eventually("the report carries the result on", func() bool {
		return field(w.report("jobs", "batch", "once"), "report", "status", "succeeded") == int64(1)
	})
	w.eventually("other objects are applied", func() bool { return w.downstream(configMaps, "settings") != nil })
	if w.downstream(gvr("batch", "v1", "jobs"), "once") != nil {
		t.Error("the finished job was applied")
	}
}

func TestLesson25SecondReplicaTakesOver(t *testing.T) {
	w := newWorld(t)
	w.put("configmaps", settings)
	w.assign()
	stop := w.start()
	w.eventually("the first works", func() bool { return w.downstream(configMaps, "settings") != nil })
	w.start()
	before := w.uids()
	stop()
	w.put("configmaps", strings.Replace(settings, "blue", "red", 1))
	w.eventually("the second works", func() bool { return field(w.downstream(configMaps, "settings"), "data", "color") == "red" })
	if diff := cmp.Diff(before, w.uids()); diff != "" {
		t.Errorf("uids (-before +after):\n%s", diff)
	}
}

func TestHeartbeat(t *testing.T) {
	w := newWorld(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + w.id.targetKey}}
	if _, err := w.kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.eventually("the target has a heartbeat", func() bool { return w.vw.requested("PATCH synctargets") > 0 })
	w.vw.mu.Lock()
	target := w.vw.target
	w.vw.mu.Unlock()
	if got := field(target, "status", "kubernetesVersion"); got == nil || got == "" {
		t.Errorf("kubernetesVersion = %v", got)
	}
	if got := field(target, "status", "lastSyncerHeartbeatTime"); got == nil {
		t.Error("no time of the heartbeat")
	}
}
