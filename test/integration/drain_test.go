package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/test/framework"
)

// preview asks what a drain would do, as the administrator or who is impersonated.
func (s *stage) preview(name, query string, as ...string) ([]workloadv1alpha1.DrainPreview, error) {
	s.t.Helper()
	cfg := s.server.AdminConfig(s.t, "root")
	cfg.Host = s.server.URL
	if len(as) > 0 {
		cfg.Impersonate = rest.ImpersonationConfig{UserName: as[0], Groups: []string{"system:authenticated"}}
	}
	client, err := kubernetes.NewForConfig(cfg)
	s.must(err)
	data, err := client.RESTClient().Get().RequestURI("/services/drain/" + string(s.compute) + "/" + name + query).Do(s.t.Context()).Raw()
	if err != nil {
		return nil, err
	}
	var out []workloadv1alpha1.DrainPreview
	s.must(json.Unmarshal(data, &out))
	return out, nil
}

// previews waits until the preview of a drain is described by want: one line each.
func (s *stage) previews(name, query string, want ...string) {
	s.t.Helper()
	framework.Eventually(s.t, "preview of "+name+query, func(context.Context) (bool, string) {
		previews, err := s.preview(name, query)
		s.must(err)
		got := []string{}
		for _, p := range previews {
			line := fmt.Sprintf("%s/%s %s: %s", p.Workspace, p.Namespace, p.Result, p.Message)
			if p.To != nil {
				line = fmt.Sprintf("%s/%s %s to %s at %s: %s", p.Workspace, p.Namespace, p.Result, p.To.Target, p.To.Location, p.Message)
			}
			got = append(got, line)
		}
		return slices.Equal(want, got), cmp.Diff(want, got)
	})
}

// emptyNamespace makes one in the tenant's workspace.
func (s *stage) emptyNamespace(name string) {
	s.t.Helper()
	_, err := s.kube.CoreV1().Namespaces().Create(s.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	s.must(err)
}

func podTemplate(restart corev1.RestartPolicy) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}},
		Spec:       corev1.PodSpec{RestartPolicy: restart, Containers: []corev1.Container{{Name: "x", Image: "x:1"}}},
	}
}

func (s *stage) job(namespace string) *batchv1.Job {
	s.t.Helper()
	job, err := s.kube.BatchV1().Jobs(namespace).Create(s.t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "import"},
		Spec:       batchv1.JobSpec{Template: podTemplate(corev1.RestartPolicyNever)},
	}, metav1.CreateOptions{})
	s.must(err)
	return job
}

// TestDrainPreview asks what a drain would do: it moves, is blocked, is held, ends; and
// changes nothing.
func TestDrainPreview(t *testing.T) {
	s := newStage(t)
	ctx := t.Context()
	s.previews("east", "")
	s.patchTarget("west", `{"spec":{"unschedulable":true}}`)
	s.application(namespaceWeb)
	s.assignments(namespaceWeb, "east Active Syncing")
	s.emptyNamespace("db")
	_, err := s.kube.AppsV1().StatefulSets("db").Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, Template: podTemplate(corev1.RestartPolicyAlways),
		},
	}, metav1.CreateOptions{})
	s.must(err)
	s.assignments("db", "east Active Syncing")

	held := tenantPath + `/db Held: StatefulSet "db" must not run twice`
	s.previews("east", "", held, tenantPath+`/web Blocked: no other target can take over: west at Location "everywhere": it is cordoned`)
	s.patchTarget("west", `{"spec":{"unschedulable":null}}`)
	s.previews("east", "", held, tenantPath+"/web Moves to west at everywhere: chosen: 0 namespaces")
	s.previews("east", "?force=true",
		tenantPath+"/db Moves to west at everywhere: chosen: 0 namespaces",
		tenantPath+"/web Moves to west at everywhere: chosen: 1 namespace")
	s.patchTarget("west", `{"spec":{"unschedulable":true}}`)
	framework.Eventually(t, "a forced drain would end both", func(context.Context) (bool, string) {
		previews, err := s.preview("east", "?force=true")
		s.must(err)
		return len(previews) == 2 && previews[0].Result == workloadv1alpha1.DrainEnds && previews[1].Result == workloadv1alpha1.DrainEnds &&
			strings.Contains(previews[0].Message, "it is cordoned"), fmt.Sprintf("%+v", previews)
	})

	// Nothing has changed by asking.
	s.assignments(namespaceWeb, "east Active Syncing")
	s.assignments("db", "east Active Syncing")
	if st := s.target("east"); st.Spec.EvictAfter != nil || st.Spec.Unschedulable || st.Status.Drain != nil {
		t.Errorf("asking has changed the target: %+v", st)
	}

	// Others may not ask, and are not told what there is.
	for _, name := range []string{"east", "north"} {
		if _, err := s.preview(name, "", "bob"); !apierrors.IsForbidden(err) {
			t.Errorf("bob asks about %s: %v, want forbidden", name, err)
		}
	}
	if _, err := s.preview("north", ""); !apierrors.IsNotFound(err) {
		t.Errorf("preview of a target that does not exist: %v, want not found", err)
	}
}

// TestDrainHolds pins that a namespace with a Job at work stays until the Job has ended,
// and that forcing moves what is held.
func TestDrainHolds(t *testing.T) {
	s := newStage(t)
	s.patchTarget("west", `{"spec":{"unschedulable":true}}`)
	s.emptyNamespace("batch")
	job := s.job("batch")
	s.assignments("batch", "east Active Serving")
	s.patchTarget("west", `{"spec":{"unschedulable":null}}`)

	s.patchTarget("east", fmt.Sprintf(`{"spec":{"evictAfter":%q}}`, time.Now().UTC().Format(time.RFC3339)))
	drain := s.drain("east", workloadv1alpha1.DrainBlocked, "Blocked")
	if got, want := drain.Namespaces[0].Message, `Job "import" is running`; got != want {
		t.Errorf("it is blocked because %q, want %q", got, want)
	}
	framework.Eventually(t, "the tenant is told why it stays", func(context.Context) (bool, string) {
		told := s.assignments("batch", "east Active Serving")["east"].Status.Message
		return strings.Contains(told, `it stays: Job "import" is running`), told
	})

	// It ends, by the word of its target alone: then the namespace goes, once the other
	// target has taken notice of what it need not run again.
	const ended = `{"succeeded":1,"startTime":"2030-01-01T00:00:00Z","completionTime":"2030-01-01T00:01:00Z","uncountedTerminatedPods":{},"conditions":[
		{"type":"SuccessCriteriaMet","status":"True","lastTransitionTime":"2030-01-01T00:01:00Z"},
		{"type":"Complete","status":"True","lastTransitionTime":"2030-01-01T00:01:00Z"}]}`
	s.jobStatus("batch", "east", job, ended)
	s.assigned("batch", "west")
	s.jobStatus("batch", "west", job, ended)
	s.assignments("batch", "east going", "west Active Serving")
	s.removed("east", "batch")
	s.drain("east", workloadv1alpha1.DrainEmpty)

	// Another one, on west: forced.
	s.patchTarget("east", `{"spec":{"evictAfter":null,"unschedulable":null}}`)
	s.must(s.kube.BatchV1().Jobs("batch").Delete(t.Context(), "import", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}))
	job = s.job("batch")
	s.jobStatus("batch", "west", job, `{"active":1}`)
	s.patchTarget("west", fmt.Sprintf(`{"spec":{"evictAfter":%q}}`, time.Now().UTC().Format(time.RFC3339)))
	s.drain("west", workloadv1alpha1.DrainBlocked, "Blocked")
	s.patchTarget("west", `{"spec":{"forceEvict":true}}`)
	s.assigned("batch", "east")
	s.jobStatus("batch", "east", job, `{"active":1}`)
	s.assignments("batch", "east Active Serving", "west going")
}

// jobStatus speaks as a syncer about a Job.
func (s *stage) jobStatus(namespace, target string, job *batchv1.Job, status string) {
	s.t.Helper()
	s.write(target, namespace, &workloadv1alpha1.SyncReport{
		ObjectMeta: metav1.ObjectMeta{Name: s.key(target) + "-jobs-" + job.Name},
		Spec: workloadv1alpha1.SyncReportSpec{
			Target: s.key(target), Group: "batch", Version: "v1", Resource: "jobs", Name: job.Name, UID: string(job.UID),
		},
		Report: workloadv1alpha1.SyncReportData{
			Synced: true, AppliedGeneration: job.Generation, ObservedGeneration: job.Generation, Status: &runtime.RawExtension{Raw: []byte(status)},
		},
	})
}
