package status

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/polymorphichelpers"
	"sigs.k8s.io/yaml"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
)

// object makes an object of generation 3 with uid u from YAML.
func object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	if err := obj.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	obj.SetName("web")
	obj.SetUID(types.UID("u"))
	obj.SetGeneration(3)
	return obj
}

type reportOption func(*workloadv1alpha1.SyncReport)

// report makes a report of target that has applied and observed generation 3.
func report(t *testing.T, target, status string, opts ...reportOption) *workloadv1alpha1.SyncReport {
	t.Helper()
	r := &workloadv1alpha1.SyncReport{
		Spec:   workloadv1alpha1.SyncReportSpec{Target: target, UID: "u"},
		Report: workloadv1alpha1.SyncReportData{Synced: true, AppliedGeneration: 3, ObservedGeneration: 3},
	}
	if status != "" {
		raw, err := yaml.YAMLToJSON([]byte(status))
		if err != nil {
			t.Fatal(err)
		}
		r.Report.Status = &runtime.RawExtension{Raw: raw}
	}
	for _, opt := range opts {
		opt(r)
	}
	return r
}

func observed(n int64) reportOption {
	return func(r *workloadv1alpha1.SyncReport) { r.Report.ObservedGeneration = n }
}

func applied(n int64) reportOption {
	return func(r *workloadv1alpha1.SyncReport) { r.Report.AppliedGeneration = n }
}

func failed(message string) reportOption {
	return func(r *workloadv1alpha1.SyncReport) { r.Report.Synced, r.Report.Message = false, message }
}

func uid(s string) reportOption {
	return func(r *workloadv1alpha1.SyncReport) { r.Spec.UID = s }
}

const (
	deploymentYAML = "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 2}}"
	full           = `
observedGeneration: 17
replicas: 2
updatedReplicas: 2
readyReplicas: 2
availableReplicas: 2
collisionCount: 1
conditions:
- {type: Available, status: "True", reason: MinimumReplicasAvailable, lastTransitionTime: "2030-01-01T00:00:00Z"}
- {type: Progressing, status: "True", reason: NewReplicaSetAvailable, lastTransitionTime: "2030-01-01T00:00:00Z"}
`
	starting = `
observedGeneration: 1
replicas: 2
updatedReplicas: 2
unavailableReplicas: 2
conditions:
- {type: Available, status: "False", reason: MinimumReplicasUnavailable, lastTransitionTime: "2030-01-01T00:09:00Z"}
- {type: Progressing, status: "True", reason: ReplicaSetUpdated, lastTransitionTime: "2030-01-01T00:09:00Z"}
`
)

func TestAggregate(t *testing.T) {
	tests := map[string]struct {
		object  string
		reports []*workloadv1alpha1.SyncReport
		want    string
	}{
		"one target: its status, its generation mapped back": {
			object:  deploymentYAML,
			reports: []*workloadv1alpha1.SyncReport{report(t, "a", full)},
			want: `
observedGeneration: 3
replicas: 2
updatedReplicas: 2
readyReplicas: 2
availableReplicas: 2
conditions:
- {type: Available, status: "True", reason: MinimumReplicasAvailable, lastTransitionTime: "2030-01-01T00:00:00Z"}
- {type: Progressing, status: "True", reason: NewReplicaSetAvailable, lastTransitionTime: "2030-01-01T00:00:00Z"}
`,
		},
		"a handover: replicas are the sum, what serves is available": {
			object:  deploymentYAML,
			reports: []*workloadv1alpha1.SyncReport{report(t, "b", starting), report(t, "a", full)},
			want: `
observedGeneration: 3
replicas: 4
updatedReplicas: 4
readyReplicas: 2
availableReplicas: 2
unavailableReplicas: 2
conditions:
- {type: Available, status: "True", reason: MinimumReplicasAvailable, lastTransitionTime: "2030-01-01T00:00:00Z"}
- {type: Progressing, status: "True", reason: ReplicaSetUpdated, lastTransitionTime: "2030-01-01T00:09:00Z"}
`,
		},
		"the least observed generation counts": {
			object:  deploymentYAML,
			reports: []*workloadv1alpha1.SyncReport{report(t, "a", "{observedGeneration: 5, replicas: 1}"), report(t, "b", "{observedGeneration: 9, replicas: 1}", observed(2))},
			want:    "{observedGeneration: 2, replicas: 2}",
		},
		"a replacement that has observed nothing yet takes nothing back": {
			object:  deploymentYAML,
			reports: []*workloadv1alpha1.SyncReport{report(t, "a", "{observedGeneration: 5, replicas: 1}"), report(t, "b", "{}", observed(0))},
			want:    "{observedGeneration: 3, replicas: 1}",
		},
		"the report of a former object of the name does not count": {
			object:  deploymentYAML,
			reports: []*workloadv1alpha1.SyncReport{report(t, "a", "{observedGeneration: 5, replicas: 2}", uid("former")), report(t, "b", "{observedGeneration: 1, replicas: 1}")},
			want:    "{observedGeneration: 3, replicas: 1}",
		},
		"Lesson07 with no target the counts are zero": {
			object: "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 2}, status: {observedGeneration: 3, replicas: 2, availableReplicas: 2, conditions: [{type: Available, status: 'True'}]}}",
			want:   "{observedGeneration: 3}",
		},
		"a rollout that is stuck anywhere is stuck": {
			object: deploymentYAML,
			reports: []*workloadv1alpha1.SyncReport{
				report(t, "a", `{conditions: [{type: Progressing, status: "True"}]}`),
				report(t, "b", `{conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded}]}`),
			},
			want: `{conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded}]}`,
		},
		"stateful set": {
			object: "{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 3}}",
			reports: []*workloadv1alpha1.SyncReport{
				report(t, "a", "{observedGeneration: 1, replicas: 3, readyReplicas: 3, availableReplicas: 3, currentReplicas: 3, updatedReplicas: 3, currentRevision: r1, updateRevision: r1, collisionCount: 0}"),
				report(t, "b", "{observedGeneration: 1, replicas: 1, currentRevision: r1, updateRevision: r2}"),
			},
			want: "{observedGeneration: 3, replicas: 4, readyReplicas: 3, availableReplicas: 3, currentReplicas: 3, updatedReplicas: 3, currentRevision: r1, updateRevision: r2}",
		},
		"daemon set": {
			object: "{apiVersion: apps/v1, kind: DaemonSet}",
			reports: []*workloadv1alpha1.SyncReport{
				report(t, "a", "{observedGeneration: 1, desiredNumberScheduled: 3, numberReady: 3, numberAvailable: 3}"),
				report(t, "b", "{observedGeneration: 1, desiredNumberScheduled: 2, numberReady: 1, numberUnavailable: 1}"),
			},
			want: "{observedGeneration: 3, desiredNumberScheduled: 5, numberReady: 4, numberAvailable: 3, numberUnavailable: 1}",
		},
		"a job that one target finished is finished": {
			object: "{apiVersion: batch/v1, kind: Job, status: {active: 1}}",
			reports: []*workloadv1alpha1.SyncReport{
				report(t, "a", "{active: 1}"),
				report(t, "b", `{succeeded: 1, conditions: [{type: Complete, status: "True"}]}`),
			},
			want: `{succeeded: 1, conditions: [{type: Complete, status: "True"}]}`,
		},
		"a finished job never changes": {
			object:  `{apiVersion: batch/v1, kind: Job, status: {succeeded: 1, conditions: [{type: Complete, status: "True"}]}}`,
			reports: []*workloadv1alpha1.SyncReport{report(t, "b", "{active: 1}")},
			want:    `{succeeded: 1, conditions: [{type: Complete, status: "True"}]}`,
		},
		"a job's counters do not decrease when it moves": {
			object:  `{apiVersion: batch/v1, kind: Job, status: {failed: 2, startTime: "2030-01-01T00:00:00Z"}}`,
			reports: []*workloadv1alpha1.SyncReport{report(t, "b", `{active: 1, failed: 1, startTime: "2030-01-01T01:00:00Z"}`)},
			want:    `{active: 1, failed: 2, startTime: "2030-01-01T00:00:00Z"}`,
		},
		"service: the load balancers of all": {
			object: "{apiVersion: v1, kind: Service}",
			reports: []*workloadv1alpha1.SyncReport{
				report(t, "a", "{loadBalancer: {ingress: [{ip: 10.0.0.1}]}}"),
				report(t, "b", "{loadBalancer: {ingress: [{ip: 10.0.0.2}, {ip: 10.0.0.1}]}}"),
			},
			want: "{loadBalancer: {ingress: [{ip: 10.0.0.1}, {ip: 10.0.0.2}]}}",
		},
		"ingress: the gateways' address, never a target's": {
			object:  "{apiVersion: networking.k8s.io/v1, kind: Ingress, status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}}",
			reports: []*workloadv1alpha1.SyncReport{report(t, "a", "{loadBalancer: {ingress: [{ip: 10.0.0.1}]}}")},
			want:    "{loadBalancer: {ingress: [{ip: 192.0.2.1}]}}",
		},
		"claim: bound when all are": {
			object:  "{apiVersion: v1, kind: PersistentVolumeClaim}",
			reports: []*workloadv1alpha1.SyncReport{report(t, "a", "{phase: Bound}"), report(t, "b", "{phase: Pending}")},
			want:    "{phase: Pending}",
		},
		"pod: without the node": {
			object:  "{apiVersion: v1, kind: Pod}",
			reports: []*workloadv1alpha1.SyncReport{report(t, "a", "{phase: Running, podIP: 10.1.0.1, hostIP: 172.16.0.1, hostIPs: [{ip: 172.16.0.1}]}")},
			want:    "{phase: Running, podIP: 10.1.0.1}",
		},
		"any kind with conditions": {
			object: "{apiVersion: example.com/v1, kind: Widget}",
			reports: []*workloadv1alpha1.SyncReport{
				report(t, "a", `{size: 4, conditions: [{type: Ready, status: "True", observedGeneration: 1}]}`),
				report(t, "b", `{size: 5, conditions: [{type: Ready, status: "False", observedGeneration: 7}]}`),
			},
			want: `{size: 4, conditions: [{type: Ready, status: "False", observedGeneration: 3}]}`,
		},
		"any kind without": {
			object:  "{apiVersion: example.com/v1, kind: Widget}",
			reports: []*workloadv1alpha1.SyncReport{report(t, "a", "{size: 4}")},
			want:    "{size: 4}",
		},
		"nothing reported, nothing known": {
			object:  deploymentYAML,
			reports: []*workloadv1alpha1.SyncReport{report(t, "a", "")},
			want:    "{}",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			obj := object(t, tc.object)
			before := obj.DeepCopy()
			got, changed := Aggregate(obj, tc.reports)
			want := object(t, "{apiVersion: v1, kind: X, status: "+flow(t, tc.want)+"}").Object["status"]
			if diff := cmp.Diff(essence(want), essence(got)); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if wantChanged := !cmp.Equal(essence(before.Object["status"]), essence(want)); changed != wantChanged {
				t.Errorf("changed = %v, want %v", changed, wantChanged)
			}
			if diff := cmp.Diff(before, obj); diff != "" {
				t.Errorf("the object was changed:\n%s", diff)
			}
			obj.Object["status"] = got
			if _, again := Aggregate(obj, tc.reports); again {
				t.Error("a second time changed the status again")
			}
		})
	}
}

func flow(t *testing.T, s string) string {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestRolloutStatus asks kubectl's own code whether a rollout is done.
func TestRolloutStatus(t *testing.T) {
	tests := map[string]struct {
		reports []*workloadv1alpha1.SyncReport
		want    bool
	}{
		"the new generation runs":                  {[]*workloadv1alpha1.SyncReport{report(t, "a", full)}, true},
		"applied, not observed":                    {[]*workloadv1alpha1.SyncReport{report(t, "a", full, observed(2))}, false},
		"observed here, not there":                 {[]*workloadv1alpha1.SyncReport{report(t, "a", full), report(t, "b", full, observed(2))}, false},
		"both":                                     {[]*workloadv1alpha1.SyncReport{report(t, "a", full), report(t, "b", full)}, true},
		"a replacement that was given nothing yet": {[]*workloadv1alpha1.SyncReport{report(t, "a", full), report(t, "b", "{}", observed(0))}, true},
		"no target":                                {nil, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			obj := object(t, "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 2}, status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, availableReplicas: 2}}")
			obj.Object["status"], _ = Aggregate(obj, tc.reports)
			message, done, err := (&polymorphichelpers.DeploymentStatusViewer{}).Status(obj, 0)
			if err != nil {
				t.Fatal(err)
			}
			if done != tc.want {
				t.Errorf("rollout done = %v, want %v: %s", done, tc.want, message)
			}
		})
	}
}

func TestHealthy(t *testing.T) {
	const (
		statefulYAML = "{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 2}}"
		daemonYAML   = "{apiVersion: apps/v1, kind: DaemonSet}"
		podYAML      = "{apiVersion: v1, kind: Pod}"
	)
	tests := map[string]struct {
		object string
		report *workloadv1alpha1.SyncReport
		want   Health
	}{
		"in full":              {deploymentYAML, report(t, "a", full), Health{Applied: true, Healthy: true, Available: 2, Wanted: 2}},
		"no report":            {deploymentYAML, nil, Health{Wanted: 2, Message: `Deployment "web" has not been applied yet`}},
		"of a former object":   {deploymentYAML, report(t, "a", full, uid("former")), Health{Wanted: 2, Message: `Deployment "web" has not been applied yet`}},
		"refused":              {deploymentYAML, report(t, "a", "", failed("quota exceeded")), Health{Wanted: 2, Message: `Deployment "web" could not be applied: quota exceeded`}},
		"an older generation":  {deploymentYAML, report(t, "a", full, applied(2), observed(2)), Health{Available: 2, Wanted: 2, Message: `Deployment "web" has not been applied in its present generation yet`}},
		"not observed":         {deploymentYAML, report(t, "a", full, observed(2)), Health{Applied: true, Available: 2, Wanted: 2, Message: `Deployment "web" has not been observed by its controller there yet`}},
		"pods starting":        {deploymentYAML, report(t, "a", starting), Health{Applied: true, Wanted: 2, Message: `Deployment "web": 0 of 2 pods are available`}},
		"pods of the old spec": {deploymentYAML, report(t, "a", "{updatedReplicas: 1, availableReplicas: 2}"), Health{Applied: true, Available: 2, Wanted: 2, Message: `Deployment "web": 1 of 2 pods are up to date`}},
		"default of 1 replica": {"{apiVersion: apps/v1, kind: Deployment, spec: {}}", report(t, "a", "{updatedReplicas: 1, availableReplicas: 1}"), Health{Applied: true, Healthy: true, Available: 1, Wanted: 1}},
		"scaled to zero":       {"{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 0}}", report(t, "a", "{}"), Health{Applied: true, Healthy: true}},
		"paused":               {"{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 2, paused: true}}", report(t, "a", "{availableReplicas: 2}"), Health{Applied: true, Healthy: true, Available: 2, Wanted: 2}},

		"stateful set in full":      {statefulYAML, report(t, "a", "{availableReplicas: 2, currentRevision: a, updateRevision: a}"), Health{Applied: true, Healthy: true, Available: 2, Wanted: 2}},
		"stateful set updating":     {statefulYAML, report(t, "a", "{availableReplicas: 2, updatedReplicas: 1, currentRevision: a, updateRevision: b}"), Health{Applied: true, Available: 2, Wanted: 2, Message: `StatefulSet "web": 1 of 2 pods are up to date`}},
		"stateful set partitioned":  {"{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 2, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}}}", report(t, "a", "{availableReplicas: 2, updatedReplicas: 1, currentRevision: a, updateRevision: b}"), Health{Applied: true, Healthy: true, Available: 2, Wanted: 2}},
		"daemon set in full":        {daemonYAML, report(t, "a", "{desiredNumberScheduled: 1, updatedNumberScheduled: 1, numberAvailable: 1}"), Health{Applied: true, Healthy: true, Available: 1, Wanted: 1}},
		"daemon set starting":       {daemonYAML, report(t, "a", "{desiredNumberScheduled: 1, updatedNumberScheduled: 1}"), Health{Applied: true, Wanted: 1, Message: `DaemonSet "web": 0 of 1 pods are available`}},
		"daemon set, not looked at": {daemonYAML, report(t, "a", "", observed(0)), Health{Applied: true, Message: `DaemonSet "web" has not been observed by its controller there yet`}},
		"pod ready":                 {podYAML, report(t, "a", `{phase: Running, conditions: [{type: Ready, status: "True"}]}`), Health{Applied: true, Healthy: true, Available: 1, Wanted: 1}},
		"pod starting":              {podYAML, report(t, "a", "{phase: Pending}"), Health{Applied: true, Wanted: 1, Message: `Pod "web": it is not ready`}},
		"pod done":                  {podYAML, report(t, "a", "{phase: Succeeded}"), Health{Applied: true, Healthy: true, Available: 1, Wanted: 1}},
		"no workload":               {"{apiVersion: v1, kind: ConfigMap}", report(t, "a", "", observed(0)), Health{Applied: true, Healthy: true}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, HealthOf(object(t, tc.object), tc.report)); diff != "" {
				t.Errorf("health (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusThatIsNoObject(t *testing.T) {
	r := report(t, "a", "")
	r.Report.Status = &runtime.RawExtension{Raw: json.RawMessage(`"x"`)}
	if got, changed := Aggregate(object(t, deploymentYAML), []*workloadv1alpha1.SyncReport{r}); changed || len(got) > 0 {
		t.Errorf("status = %v, changed = %v, want none", got, changed)
	}
}
