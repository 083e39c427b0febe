package handover

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, doc string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(doc), &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

func TestHoldOf(t *testing.T) {
	tests := map[string]struct {
		gvr  schema.GroupVersionResource
		doc  string
		want hold
	}{
		"a claim":                        {claims, `{}`, holdsData},
		"a StatefulSet with templates":   {statefulSets, `{spec: {volumeClaimTemplates: [{metadata: {name: data}}]}}`, holdsData},
		"a StatefulSet without":          {statefulSets, `{spec: {replicas: 1}}`, holdsIdentity},
		"a new Job":                      {jobs, `{spec: {}}`, holdsRun},
		"a Job at work":                  {jobs, `{status: {active: 1}}`, holdsRun},
		"a suspended Job":                {jobs, `{spec: {suspend: true}}`, holdsNothing},
		"a Job that failed once":         {jobs, `{status: {active: 1, failed: 1, conditions: [{type: Failed, status: "False"}]}}`, holdsRun},
		"a Job that is about to end":     {jobs, `{status: {conditions: [{type: SuccessCriteriaMet, status: "True"}]}}`, holdsRun},
		"a Job that is complete":         {jobs, `{status: {conditions: [{type: Complete, status: "True"}]}}`, holdsNothing},
		"a Job that has failed":          {jobs, `{status: {conditions: [{type: Failed, status: "True"}]}}`, holdsNothing},
		"a CronJob between its runs":     {cronJobs, `{status: {lastScheduleTime: "2030-01-01T00:00:00Z"}}`, holdsNothing},
		"a CronJob with a run under way": {cronJobs, `{status: {active: [{name: nightly-1}]}}`, holdsRun},
		"a Deployment":                   {deployments, `{spec: {replicas: 1}}`, holdsNothing},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := holdOf(tc.gvr, object(t, tc.doc)); got != tc.want {
				t.Errorf("holdOf() = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestHeldBy(t *testing.T) {
	tests := map[string]struct {
		objects map[hold][]string
		want    string
	}{
		"nothing": {map[hold][]string{holdsNothing: {`Deployment "web"`}}, ""},
		"one of each": {
			map[hold][]string{holdsRun: {`Job "import"`}, holdsData: {`PersistentVolumeClaim "data"`}, holdsIdentity: {`StatefulSet "queue"`}},
			`the data of PersistentVolumeClaim "data" would be lost; StatefulSet "queue" must not run twice; Job "import" is running`,
		},
		"sorted": {
			map[hold][]string{holdsRun: {`Job "b"`, `CronJob "c"`, `Job "a"`}},
			`CronJob "c", Job "a", Job "b" are running`,
		},
		"many": {
			map[hold][]string{holdsRun: {"1", "2", "3", "4", "5", "6", "7"}},
			"1, 2, 3, 4, 5, 2 more are running",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, heldBy(tc.objects)); diff != "" {
				t.Errorf("heldBy() (-want +got):\n%s", diff)
			}
		})
	}
}
