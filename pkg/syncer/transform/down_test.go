package transform

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	// By way of JSON as the API machinery reads it: whole numbers are int64.
	b, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := utiljson.Unmarshal(b, &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

func resource(t *testing.T, group, name string) resources.Resource {
	t.Helper()
	all, err := resources.Synced(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.GroupResource() == (schema.GroupResource{Group: group, Resource: name}) {
			return r
		}
	}
	t.Fatalf("no resource %s in group %q", name, group)
	return resources.Resource{}
}

func TestDown(t *testing.T) {
	cases := map[string]struct {
		group, resource string
		source, want    string
	}{
		"Metadata": {
			resource: "configmaps",
			source: `
metadata:
  name: settings
  namespace: shop
  uid: u-1
  resourceVersion: "7"
  generation: 3
  creationTimestamp: "2026-01-02T03:04:05Z"
  finalizers: [example.com/wait]
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: x, uid: z}]
  managedFields: [{manager: kubectl}]
  labels: {app: web, workload.kcp.io/other: x}
  annotations:
    kcp.io/cluster: abc
    scheduling.kcp.io/x: z
    kubectl.kubernetes.io/last-applied-configuration: "{}"
    example.com/kept: "yes"
data: {a: b}`,
			want: `
metadata:
  labels: {app: web}
  annotations: {example.com/kept: "yes", workload.kcp.io/generation: "3", workload.kcp.io/source-uid: u-1}
data: {a: b}`,
		},
		"StatusStays": {
			group: "apps", resource: "deployments",
			source: `
metadata: {name: web, uid: u-1, generation: 2, annotations: {deployment.kubernetes.io/revision: "4"}}
spec: {replicas: 2}
status: {replicas: 2}`,
			want: `
metadata: {annotations: {workload.kcp.io/generation: "2", workload.kcp.io/source-uid: u-1}}
spec: {replicas: 2}`,
		},
		"ServiceAddress": {
			resource: "services",
			source: `
metadata: {name: web, uid: u-1}
spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, type: ClusterIP, ports: [{port: 80}]}
status: {loadBalancer: {}}`,
			want: `
metadata: {annotations: {workload.kcp.io/generation: "0", workload.kcp.io/source-uid: u-1}}
spec: {type: ClusterIP, ports: [{port: 80}]}`,
		},
		"HeadlessService": {
			resource: "services",
			source: `
metadata: {name: web, uid: u-1}
spec: {clusterIP: None, clusterIPs: [None], ipFamilyPolicy: RequireDualStack}`,
			want: `
metadata: {annotations: {workload.kcp.io/generation: "0", workload.kcp.io/source-uid: u-1}}
spec: {clusterIP: None, clusterIPs: [None], ipFamilyPolicy: RequireDualStack}`,
		},
		"ServiceAccountTokens": {
			resource: "serviceaccounts",
			source: `
metadata: {name: robot, uid: u-1}
secrets: [{name: robot-token}]
imagePullSecrets: [{name: pull}]`,
			want: `
metadata: {annotations: {workload.kcp.io/generation: "0", workload.kcp.io/source-uid: u-1}}
imagePullSecrets: [{name: pull}]`,
		},
		"ClaimBinding": {
			resource: "persistentvolumeclaims",
			source: `
metadata: {name: data, uid: u-1, annotations: {pv.kubernetes.io/bind-completed: "yes", volume.kubernetes.io/selected-node: n}}
spec: {volumeName: pv-1, accessModes: [ReadWriteOnce]}`,
			want: `
metadata: {annotations: {workload.kcp.io/generation: "0", workload.kcp.io/source-uid: u-1}}
spec: {accessModes: [ReadWriteOnce]}`,
		},
		"GeneratedJobSelector": {
			group: "batch", resource: "jobs",
			source: `
metadata: {name: once, uid: u-1, generation: 1}
spec:
  ttlSecondsAfterFinished: 5
  manualSelector: false
  selector: {matchLabels: {batch.kubernetes.io/controller-uid: u-1}}
  template: {metadata: {labels: {controller-uid: u-1, job-name: once, batch.kubernetes.io/controller-uid: u-1, batch.kubernetes.io/job-name: once, app: once}}}`,
			want: `
metadata: {annotations: {workload.kcp.io/generation: "1", workload.kcp.io/source-uid: u-1}}
spec: {template: {metadata: {labels: {app: once}}}}`,
		},
		"OwnJobSelector": {
			group: "batch", resource: "jobs",
			source: `
metadata: {name: once, uid: u-1, generation: 1}
spec: {manualSelector: true, selector: {matchLabels: {app: once}}}`,
			want: `
metadata: {annotations: {workload.kcp.io/generation: "1", workload.kcp.io/source-uid: u-1}}
spec: {manualSelector: true, selector: {matchLabels: {app: once}}}`,
		},
		"PodScheduling": {
			resource: "pods",
			source: `
metadata: {name: p, uid: u-1, generation: 1}
spec:
  nodeName: n1
  serviceAccount: robot
  serviceAccountName: robot
  priority: 0
  preemptionPolicy: PreemptLowerPriority
  volumes: [{name: kube-api-access-x, projected: {}}, {name: data, emptyDir: {}}]
  containers: [{name: c, volumeMounts: [{name: kube-api-access-x, mountPath: /t}, {name: data, mountPath: /d}]}]
  initContainers: [{name: i, volumeMounts: [{name: kube-api-access-x, mountPath: /t}]}]`,
			want: `
metadata: {annotations: {workload.kcp.io/generation: "1", workload.kcp.io/source-uid: u-1}}
spec:
  serviceAccountName: robot
  volumes: [{name: data, emptyDir: {}}]
  containers: [{name: c, volumeMounts: [{name: data, mountPath: /d}]}]
  initContainers: [{name: i}]`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := resource(t, tc.group, tc.resource)
			source := object(t, tc.source)
			before := source.DeepCopy()
			got, err := Down(r, source, "kcp-x", "t1")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before.Object, source.Object); diff != "" {
				t.Errorf("Down changed its argument (-before +after):\n%s", diff)
			}
			want := object(t, tc.want)
			want.SetGroupVersionKind(r.GroupVersionKind())
			want.SetName(source.GetName())
			want.SetNamespace("kcp-x")
			labels := want.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			labels[names.SyncerLabel] = "t1"
			want.SetLabels(labels)
			annotations := want.GetAnnotations()
			annotations[names.HashAnnotation] = got.GetAnnotations()[names.HashAnnotation]
			want.SetAnnotations(annotations)
			if diff := cmp.Diff(want.Object, got.Object); diff != "" {
				t.Errorf("Down (-want +got):\n%s", diff)
			}
		})
	}
}

// The hash decides what is written: it has to be the same for the same input and
// another one for another.
func TestDownHash(t *testing.T) {
	r := resource(t, "", "configmaps")
	hash := func(text string) string {
		t.Helper()
		out, err := Down(r, object(t, text), "kcp-x", "t1")
		if err != nil {
			t.Fatal(err)
		}
		return out.GetAnnotations()[names.HashAnnotation]
	}
	base := hash(`{metadata: {name: a, uid: u, resourceVersion: "1"}, data: {k: v}}`)
	if base == "" {
		t.Fatal("no hash")
	}
	if got := hash(`{metadata: {name: a, uid: u, resourceVersion: "2"}, data: {k: v}}`); got != base {
		t.Errorf("hash depends on the resource version: %q, %q", base, got)
	}
	for what, text := range map[string]string{
		"data":       `{metadata: {name: a, uid: u}, data: {k: w}}`,
		"labels":     `{metadata: {name: a, uid: u, labels: {x: v}}, data: {k: v}}`,
		"uid":        `{metadata: {name: a, uid: w}, data: {k: v}}`,
		"generation": `{metadata: {name: a, uid: u, generation: 2}, data: {k: v}}`,
	} {
		if hash(text) == base {
			t.Errorf("hash does not depend on %s", what)
		}
	}
}

func TestSkipped(t *testing.T) {
	cases := map[string]struct {
		resource string
		obj      string
		want     bool
	}{
		"RootCA":              {"configmaps", `{metadata: {name: kube-root-ca.crt}}`, true},
		"ConfigMap":           {"configmaps", `{metadata: {name: default}}`, false},
		"DefaultAccount":      {"serviceaccounts", `{metadata: {name: default}}`, true},
		"ServiceAccount":      {"serviceaccounts", `{metadata: {name: robot}}`, false},
		"TokenSecret":         {"secrets", `{metadata: {name: a}, type: kubernetes.io/service-account-token}`, true},
		"Secret":              {"secrets", `{metadata: {name: a}, type: Opaque}`, false},
		"Pod":                 {"pods", `{metadata: {name: a}}`, false},
		"MirroredPod":         {"pods", `{metadata: {name: a, labels: {workload.kcp.io/target: t1}}}`, true},
		"MirrorOfSomeoneElse": {"pods", `{metadata: {name: a, labels: {workload.kcp.io/target: t2}}}`, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Skipped(resource(t, "", tc.resource), object(t, tc.obj)); got != tc.want {
				t.Errorf("Skipped() = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestFinished(t *testing.T) {
	cases := map[string]struct {
		group, resource string
		obj             string
		want            bool
	}{
		"RunningPod":    {"", "pods", `{status: {phase: Running}}`, false},
		"SucceededPod":  {"", "pods", `{status: {phase: Succeeded}}`, true},
		"FailedPod":     {"", "pods", `{status: {phase: Failed}}`, true},
		"NewJob":        {"batch", "jobs", `{spec: {}}`, false},
		"SuspendedJob":  {"batch", "jobs", `{status: {conditions: [{type: Suspended, status: "True"}]}}`, false},
		"CompleteJob":   {"batch", "jobs", `{status: {conditions: [{type: Complete, status: "True"}]}}`, true},
		"NotFailedJob":  {"batch", "jobs", `{status: {conditions: [{type: Failed, status: "False"}]}}`, false},
		"OtherResource": {"apps", "deployments", `{status: {phase: Failed}}`, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Finished(resource(t, tc.group, tc.resource), object(t, tc.obj)); got != tc.want {
				t.Errorf("Finished() = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestDrift(t *testing.T) {
	cases := map[string]struct {
		desired, existing string
		want              bool
	}{
		"Same":           {`{spec: {a: 1}}`, `{spec: {a: 1}}`, false},
		"Defaulted":      {`{spec: {a: 1}}`, `{spec: {a: 1, b: 2}, status: {c: 3}}`, false},
		"Changed":        {`{spec: {a: 1}}`, `{spec: {a: 2}}`, true},
		"Removed":        {`{spec: {a: 1}}`, `{spec: {}}`, true},
		"DefaultInList":  {`{spec: {l: [{a: 1}]}}`, `{spec: {l: [{a: 1, b: 2}]}}`, false},
		"ChangedInList":  {`{spec: {l: [{a: 1}]}}`, `{spec: {l: [{a: 3, b: 2}]}}`, true},
		"ItemAdded":      {`{spec: {l: [{a: 1}]}}`, `{spec: {l: [{a: 1}, {a: 2}]}}`, true},
		"LabelRemoved":   {`{metadata: {labels: {x: v}}}`, `{metadata: {labels: {z: v}}}`, true},
		"LabelAdded":     {`{metadata: {labels: {x: v}}}`, `{metadata: {labels: {x: v, z: v}}}`, false},
		"TypeOfOtherMap": {`{data: {a: {b: c}}}`, `{data: {a: b}}`, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fingerprint, got, err := Drift(object(t, tc.desired), object(t, tc.existing))
			if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("Drift() = %t, want %t", got, tc.want)
			}
			if (fingerprint != "") != tc.want {
				t.Errorf("fingerprint %q, drifted %t", fingerprint, got)
			}
		})
	}
}
