// Package transform turns objects of a workspace into what is applied in a physical
// cluster, and objects of a physical cluster into what is shown in the workspace. All
// functions are pure and leave their arguments alone.
package transform

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
)

// Skipped reports whether an object of a workspace stays there: mirrors, and what each
// cluster makes for itself in every namespace.
func Skipped(r resources.Resource, obj *unstructured.Unstructured) bool {
	if _, mirror := obj.GetLabels()[workloadv1alpha1.TargetLabelKey]; mirror {
		return true
	}
	switch r.Kind {
	case "ConfigMap":
		return obj.GetName() == "kube-root-ca.crt"
	case "ServiceAccount":
		return obj.GetName() == "default"
	case "Secret":
		t, _, _ := unstructured.NestedString(obj.Object, "type")
		return t == string(corev1.SecretTypeServiceAccountToken)
	}
	return false
}

// Down returns what to apply for src in the downstream namespace: what its author
// states, marked with the instance id, src's generation and uid, and a hash of all that.
func Down(r resources.Resource, src *unstructured.Unstructured, namespace, instanceID string) (*unstructured.Unstructured, error) {
	// A copy of the content without metadata and status, which are built anew.
	content := map[string]any{}
	for field, value := range src.Object {
		if field != "metadata" && field != "status" {
			content[field] = runtime.DeepCopyJSONValue(value)
		}
	}
	out := &unstructured.Unstructured{Object: content}
	out.SetGroupVersionKind(r.GroupVersionKind())
	out.SetName(src.GetName())
	out.SetNamespace(namespace)

	labels := foreign(src.GetLabels())
	labels[names.SyncerLabel] = instanceID
	annotations := foreign(src.GetAnnotations())
	if clean := cleaners[r.Kind]; clean != nil {
		clean(out, annotations)
	}
	annotations[names.GenerationAnnotation] = strconv.FormatInt(src.GetGeneration(), 10)
	annotations[names.SourceUIDAnnotation] = string(src.GetUID())
	out.SetLabels(labels)
	out.SetAnnotations(annotations)

	hash, err := contentHash(out)
	if err != nil {
		return nil, fmt.Errorf("cannot hash %s %q: %w", r, src.GetName(), err)
	}
	annotations[names.HashAnnotation] = hash
	out.SetAnnotations(annotations)
	return out, nil
}

func contentHash(obj *unstructured.Unstructured) (string, error) {
	b, err := json.Marshal(obj.Object)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16]), nil
}

// foreign returns what is not the control plane's own in labels or annotations.
func foreign(in map[string]string) map[string]string {
	out := maps.Clone(in)
	if out == nil {
		out = map[string]string{}
	}
	maps.DeleteFunc(out, func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return domain == "kcp.io" || strings.HasSuffix(domain, ".kcp.io") || key == corev1.LastAppliedConfigAnnotation
	})
	return out
}

// cleaners remove, kind by kind, what a control plane fills in and every cluster has to
// fill in for itself.
var cleaners = map[string]func(obj *unstructured.Unstructured, annotations map[string]string){
	"Service":               cleanService,
	"ServiceAccount":        cleanServiceAccount,
	"PersistentVolumeClaim": cleanClaim,
	"Deployment":            cleanDeployment,
	"Job":                   cleanJob,
	"Pod":                   cleanPod,
}

func remove(obj *unstructured.Unstructured, fields ...string) {
	unstructured.RemoveNestedField(obj.Object, fields...)
}

func cleanService(obj *unstructured.Unstructured, _ map[string]string) {
	// A headless service is a statement, an address is an allocation.
	if ip, _, _ := unstructured.NestedString(obj.Object, "spec", "clusterIP"); ip != corev1.ClusterIPNone {
		remove(obj, "spec", "clusterIP")
		remove(obj, "spec", "clusterIPs")
	}
	// Which families there are is the cluster's to say; asking for both is the user's.
	remove(obj, "spec", "ipFamilies")
	if policy, _, _ := unstructured.NestedString(obj.Object, "spec", "ipFamilyPolicy"); policy == string(corev1.IPFamilyPolicySingleStack) {
		remove(obj, "spec", "ipFamilyPolicy")
	}
	remove(obj, "spec", "healthCheckNodePort")
	// Whoever can name them takes the traffic of others to these addresses.
	remove(obj, "spec", "externalIPs")
}

func cleanServiceAccount(obj *unstructured.Unstructured, _ map[string]string) {
	remove(obj, "secrets")
}

func cleanClaim(obj *unstructured.Unstructured, annotations map[string]string) {
	remove(obj, "spec", "volumeName")
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, "pv.kubernetes.io/") || strings.HasPrefix(key, "volume.kubernetes.io/")
	})
}

func cleanDeployment(_ *unstructured.Unstructured, annotations map[string]string) {
	delete(annotations, "deployment.kubernetes.io/revision")
}

// cleanJob removes the selector that is generated from the job's uid. Time to live is
// left to the workspace: a job that a cluster cleaned up would be missing, be applied
// anew, and run again.
func cleanJob(obj *unstructured.Unstructured, _ map[string]string) {
	remove(obj, "spec", "ttlSecondsAfterFinished")
	if manual, _, _ := unstructured.NestedBool(obj.Object, "spec", "manualSelector"); manual {
		return
	}
	remove(obj, "spec", "selector")
	remove(obj, "spec", "manualSelector")
	for _, label := range []string{"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"} {
		remove(obj, "spec", "template", "metadata", "labels", label)
	}
}

// tokenVolumePrefix starts the names of volumes that service account admission adds.
const tokenVolumePrefix = "kube-api-access-"

func cleanPod(obj *unstructured.Unstructured, _ map[string]string) {
	for _, field := range []string{"nodeName", "serviceAccount", "priority", "preemptionPolicy", "overhead", "ephemeralContainers"} {
		remove(obj, "spec", field)
	}
	filterList(obj.Object, func(volume map[string]any) bool {
		name, _ := volume["name"].(string)
		return !strings.HasPrefix(name, tokenVolumePrefix)
	}, "spec", "volumes")
	for _, field := range []string{"containers", "initContainers"} {
		containers, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", field)
		list, _ := containers.([]any)
		for _, c := range list {
			container, ok := c.(map[string]any)
			if !ok {
				continue
			}
			filterList(container, func(mount map[string]any) bool {
				name, _ := mount["name"].(string)
				return !strings.HasPrefix(name, tokenVolumePrefix)
			}, "volumeMounts")
		}
	}
}

// filterList keeps of the list of maps at fields those for which keep holds; a list
// that becomes empty goes.
func filterList(obj map[string]any, keep func(map[string]any) bool, fields ...string) {
	value, _, _ := unstructured.NestedFieldNoCopy(obj, fields...)
	list, ok := value.([]any)
	if !ok {
		return
	}
	kept := make([]any, 0, len(list))
	for _, item := range list {
		if m, ok := item.(map[string]any); !ok || keep(m) {
			kept = append(kept, item)
		}
	}
	if len(kept) == 0 {
		unstructured.RemoveNestedField(obj, fields...)
		return
	}
	// The error means that a parent is no map, and then there was no list.
	_ = unstructured.SetNestedSlice(obj, kept, fields...)
}

// Finished reports whether obj, of a kind that runs once, has ended.
func Finished(r resources.Resource, obj *unstructured.Unstructured) bool {
	switch r.Kind {
	case "Pod":
		phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
		return phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed)
	case "Job":
		conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
		for _, c := range conditions {
			condition, ok := c.(map[string]any)
			if ok && condition["status"] == string(metav1.ConditionTrue) && (condition["type"] == "Complete" || condition["type"] == "Failed") {
				return true
			}
		}
	}
	return false
}
