package syncer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

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
