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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

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

func TestReportsAndMirrors(t *testing.T) {
	w := deployed(t)
	w.eventually("the report says that the controllers have seen generation 1", func() bool {
		return field(w.report("deployments", "apps", "web"), "report", "observedGeneration") == int64(1)
	})
	report := w.report("deployments", "apps", "web")
	if got := field(report, "report", "synced"); got != true {
		t.Errorf("synced = %v, want true", got)
	}
	if w.report("configmaps", "", "settings") != nil || w.report("services", "", "web") != nil {
		t.Error("there are reports of objects that have no status")
	}
	all := w.pods()
	for i, pod := range all {
		w.setReady(pod, i, true)
	}
	w.eventually("the report counts the ready pods", func() bool {
		return field(w.report("deployments", "apps", "web"), "report", "status", "availableReplicas") == int64(2)
	})
	mirror := names.Mirror(w.id.targetKey, all[0].Name)
	w.eventually("the pod is mirrored", func() bool { return field(w.upstream("pods", mirror), "status", "podIP") == "10.1.1.0" })
	got := w.upstream("pods", mirror)
	if field(got, "status", "hostIP") != nil || field(got, "spec", "nodeName") != nil {
		t.Errorf("the mirror names a node: %v", got.Object)
	}
	w.eventually("two endpoints are ready", func() bool { return w.readyEndpoints() == 2 })
	w.setReady(all[0], 0, false)
	w.eventually("one endpoint is left", func() bool { return w.readyEndpoints() == 1 })

	// A scale: the report may not claim generation 2 before the controllers saw it.
	w.put("deployments", web(3))
	w.eventually("generation 2 is observed", func() bool {
		r := w.report("deployments", "apps", "web")
		observed, replicas := field(r, "report", "observedGeneration"), field(r, "report", "status", "replicas")
		if observed == int64(2) && replicas == int64(0) {
			t.Error("generation 2 was reported with an empty status")
		}
		return observed == int64(2) && replicas == int64(3)
	})
	if err := w.kube.CoreV1().Pods(w.namespace).Delete(t.Context(), all[0].Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the mirror goes with its pod", func() bool { return w.upstream("pods", mirror) == nil })
}

func (w *world) readyEndpoints() int {
	ready := 0
	for _, slice := range w.vw.list("endpointslices") {
		if slice.GetLabels()["kubernetes.io/service-name"] != "web" {
			continue
		}
		endpoints, _, _ := unstructured.NestedSlice(slice.Object, "endpoints")
		for _, e := range endpoints {
			if r, _, _ := unstructured.NestedBool(e.(map[string]any), "conditions", "ready"); r {
				ready++
			}
		}
	}
	return ready
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

func TestDeletedMirrorRestartsPod(t *testing.T) {
	w := deployed(t)
	pod := w.pods()[0]
	mirror := names.Mirror(w.id.targetKey, pod.Name)
	w.eventually("the pod is mirrored", func() bool { return w.upstream("pods", mirror) != nil })
	w.vw.remove("pods", tenantCluster, tenantNamespace, mirror)
	w.eventually("the pod is gone and another has come", func() bool {
		all := w.pods()
		return len(all) == 2 && all[0].UID != pod.UID && all[1].UID != pod.UID
	})
	// One that the streams merely do not show any more is mirrored again.
	other := w.pods()[0]
	mirror = names.Mirror(w.id.targetKey, other.Name)
	w.eventually("the other pod is mirrored", func() bool { return w.upstream("pods", mirror) != nil })
	before := w.uids()
	w.vw.hide(func(resource string, obj *unstructured.Unstructured) bool { return resource == "pods" })
	w.vw.hide(nil)
	w.put("configmaps", strings.Replace(settings, "blue", "red", 1))
	w.eventually("the syncer is back at work", func() bool { return field(w.downstream(configMaps, "settings"), "data", "color") == "red" })
	if diff := cmp.Diff(before, w.uids()); diff != "" {
		t.Errorf("after a stream without mirrors (-before +after):\n%s", diff)
	}
}

// A StatefulSet makes pods anew under the same name.
func TestPodOfTheSameName(t *testing.T) {
	w := deployed(t)
	create := func() types.UID {
		t.Helper()
		pod, err := w.kube.CoreV1().Pods(w.namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "db-0"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return pod.UID
	}
	mirror := names.Mirror(w.id.targetKey, "db-0")
	mirrored := func(uid types.UID) func() bool {
		return func() bool {
			got := w.upstream("pods", mirror)
			return got != nil && got.GetAnnotations()[names.MirrorUIDAnnotation] == string(uid)
		}
	}
	w.eventually("the first is mirrored", mirrored(create()))
	w.stop()
	if err := w.kube.CoreV1().Pods(w.namespace).Delete(t.Context(), "db-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	uid := create()
	w.start()
	w.eventually("the second is mirrored", mirrored(uid))
	if got := w.downstream(pods, "db-0"); got == nil || got.GetUID() != uid {
		t.Errorf("pod %v was deleted because its predecessor's mirror was", uid)
	}
}

// A mirror that the syncer itself takes back is no order to restart the pod.
func TestRefusedMirrorStatus(t *testing.T) {
	w := deployed(t)
	pod := w.pods()[0]
	mirror := names.Mirror(w.id.targetKey, pod.Name)
	w.eventually("the pod is mirrored", func() bool { return w.upstream("pods", mirror) != nil })
	first := w.upstream("pods", mirror).GetUID()
	w.vw.mu.Lock()
	w.vw.refused = func(obj *unstructured.Unstructured) bool { return obj.GetUID() == first }
	w.vw.mu.Unlock()
	before := w.uids()
	w.setReady(pod, 1, true)
	w.eventually("there is a new mirror with the status", func() bool {
		got := w.upstream("pods", mirror)
		return got != nil && got.GetUID() != first && field(got, "status", "podIP") == "10.1.1.1"
	})
	if diff := cmp.Diff(before, w.uids()); diff != "" {
		t.Errorf("uids (-before +after):\n%s", diff)
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

func TestForeignNamespaceIsNotAdopted(t *testing.T) {
	w := newWorld(t)
	foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	if _, err := w.kube.CoreV1().Namespaces().Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.put("configmaps", settings)
	w.assign()
	w.start()
	other := w.put("assignments", fmt.Sprintf(`
apiVersion: scheduling.kcp.io/v1alpha1
kind: Assignment
metadata: {name: %[1]s, namespace: other, annotations: {kcp.io/cluster: cluster2}}
spec: {target: %[1]s}`, w.id.targetKey))
	own := w.id.namespace(namespaceKey{"cluster2", other.GetNamespace()})
	w.eventually("another namespace is made", func() bool {
		_, err := w.kube.CoreV1().Namespaces().Get(t.Context(), own, metav1.GetOptions{})
		return err == nil
	})
	if w.downstream(configMaps, "settings") != nil {
		t.Error("objects were applied in somebody's namespace")
	}
	w.vw.remove("assignments", tenantCluster, tenantNamespace, w.id.targetKey)
	w.eventually("the assignment is released", func() bool { return w.upstream("assignments", w.id.targetKey) == nil })
	if w.downstreamNamespace() == nil {
		t.Error("somebody's namespace was deleted")
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

// What the manifest grants: all that the syncer needs in its own namespaces, which the
// other tests show, and nothing elsewhere.
func TestLesson21Fence(t *testing.T) {
	w := deployed(t)
	client, err := kubernetes.NewForConfig(w.syncer)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	other := "other-" + w.id.targetKey
	if _, err := w.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: "x", GenerateName: "x"}
	svc := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	w.eventually("the policy is in force", func() bool {
		_, err := client.CoreV1().Services(other).Create(ctx, svc, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err)
	})
	forbidden := map[string]func() error{
		"read secrets of others": func() error {
			_, err := client.CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{})
			return err
		},
		"read all secrets": func() error {
			_, err := client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
			return err
		},
		"read its own namespace's secrets": func() error {
			_, err := client.CoreV1().Secrets(w.id.account.Namespace).List(ctx, metav1.ListOptions{})
			return err
		},
		"create a service elsewhere": func() error {
			_, err := client.CoreV1().Services(other).Create(ctx, svc, metav1.CreateOptions{})
			return err
		},
		"label a namespace as its own": func() error {
			_, err := client.CoreV1().Namespaces().Patch(ctx, other, types.MergePatchType, []byte(`{"metadata":{"labels":{"`+names.SyncerLabel+`":"`+w.id.instanceID+`"}}}`), metav1.PatchOptions{})
			return err
		},
		"give its label away": func() error {
			_, err := client.CoreV1().Namespaces().Patch(ctx, w.namespace, types.MergePatchType, []byte(`{"metadata":{"labels":{"`+names.SyncerLabel+`":null}}}`), metav1.PatchOptions{})
			return err
		},
		"delete a namespace of others": func() error {
			return client.CoreV1().Namespaces().Delete(ctx, other, metav1.DeleteOptions{})
		},
		"bind another role": func() error {
			u, err := (&session{id: w.id}).accessBinding(w.namespace)
			if err != nil {
				return err
			}
			u.SetName("more")
			_ = unstructured.SetNestedField(u.Object, "cluster-admin", "roleRef", "name")
			d := dynamicFor(t, w.syncer)
			_, err = d.Resource(roleBindingsGVR).Namespace(w.namespace).Create(ctx, u, metav1.CreateOptions{})
			return err
		},
		"bind its role elsewhere": func() error {
			u, err := (&session{id: w.id}).accessBinding(other)
			if err != nil {
				return err
			}
			_, err = dynamicFor(t, w.syncer).Resource(roleBindingsGVR).Namespace(other).Create(ctx, u, metav1.CreateOptions{})
			return err
		},
	}
	for what, f := range forbidden {
		if err := f(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: error = %v, want Forbidden", what, err)
		}
	}
}
