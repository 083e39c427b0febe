package heartbeat

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/handover"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func heardAt(d time.Duration, conditions ...metav1.Condition) *workloadv1alpha1.SyncTarget {
	at := metav1.NewTime(now.Add(d))
	return &workloadv1alpha1.SyncTarget{Status: workloadv1alpha1.SyncTargetStatus{LastHeartbeatTime: &at, Conditions: conditions}}
}

func TestReady(t *testing.T) {
	ready := metav1.Condition{Type: workloadv1alpha1.SyncTargetReady, Status: metav1.ConditionTrue}
	notReady := metav1.Condition{Type: workloadv1alpha1.SyncTargetReady, Status: metav1.ConditionFalse}
	tests := map[string]struct {
		target *workloadv1alpha1.SyncTarget
		// heard is how long ago the server heard it, negative for not since its start.
		heard, started time.Duration
		want           string
		wantWait       time.Duration
	}{
		"never heard":                 {&workloadv1alpha1.SyncTarget{}, -1, time.Hour, "False NeverConnected", 0},
		"heard just now":              {heardAt(0), 0, time.Hour, "True Heartbeating", Silence},
		"heard a moment ago":          {heardAt(0), 10 * time.Second, time.Hour, "True Heartbeating", Silence - 10*time.Second},
		"silent":                      {heardAt(-Silence, ready), Silence, time.Hour, "False Silent", 0},
		"the server was away":         {heardAt(-time.Minute, ready), -1, 10 * time.Second, "True Heartbeating", Silence - 10*time.Second},
		"silent before it was":        {heardAt(-time.Minute, notReady), -1, 10 * time.Second, "False Silent", 0},
		"silent since it is again":    {heardAt(-time.Minute, ready), -1, Silence, "False Silent", 0},
		"the syncer's clock is slow":  {heardAt(-time.Hour), 0, time.Hour, "True Heartbeating", Silence},
		"the syncer's clock is fast":  {heardAt(time.Hour, ready), Silence, time.Hour, "False Silent", 0},
		"fast, and the server is new": {heardAt(time.Hour, notReady), -1, time.Second, "False Silent", 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var heard time.Time
			if tc.heard >= 0 {
				heard = now.Add(-tc.heard)
			}
			wait := setReady(tc.target, heard, now.Add(-tc.started), now)
			c := meta.FindStatusCondition(tc.target.Status.Conditions, workloadv1alpha1.SyncTargetReady)
			if got := string(c.Status) + " " + c.Reason; got != tc.want {
				t.Errorf("Ready = %s, want %s", got, tc.want)
			}
			if wait != tc.wantWait {
				t.Errorf("look again after %s, want %s", wait, tc.wantWait)
			}
		})
	}
}

func TestSchedulable(t *testing.T) {
	at := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(d))) }
	tests := map[string]struct {
		target   workloadv1alpha1.SyncTarget
		want     string
		wantWait time.Duration
	}{
		"open":            {workloadv1alpha1.SyncTarget{}, "True Schedulable", 0},
		"cordoned":        {workloadv1alpha1.SyncTarget{Spec: workloadv1alpha1.SyncTargetSpec{Unschedulable: true}}, "False Cordoned", 0},
		"drained":         {workloadv1alpha1.SyncTarget{Spec: workloadv1alpha1.SyncTargetSpec{EvictAfter: at(0)}}, "False Draining", 0},
		"to be drained":   {workloadv1alpha1.SyncTarget{Spec: workloadv1alpha1.SyncTargetSpec{EvictAfter: at(time.Hour)}}, "True Schedulable", time.Hour},
		"being deleted":   {workloadv1alpha1.SyncTarget{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: at(0)}}, "False Deleting", 0},
		"and cordoned":    {workloadv1alpha1.SyncTarget{Spec: workloadv1alpha1.SyncTargetSpec{Unschedulable: true, EvictAfter: at(time.Hour)}}, "False Cordoned", time.Hour},
		"cordon is later": {workloadv1alpha1.SyncTarget{Spec: workloadv1alpha1.SyncTargetSpec{Unschedulable: true, EvictAfter: at(-time.Hour)}}, "False Draining", 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wait := setSchedulable(&tc.target, now)
			c := meta.FindStatusCondition(tc.target.Status.Conditions, workloadv1alpha1.SyncTargetSchedulable)
			if got := string(c.Status) + " " + c.Reason; got != tc.want {
				t.Errorf("Schedulable = %s, want %s", got, tc.want)
			}
			if wait != tc.wantWait {
				t.Errorf("look again after %s, want %s", wait, tc.wantWait)
			}
		})
	}
}

func TestDrain(t *testing.T) {
	evict := func(d time.Duration) *workloadv1alpha1.SyncTarget {
		st := &workloadv1alpha1.SyncTarget{}
		st.Spec.EvictAfter = new(metav1.NewTime(now.Add(d)))
		return st
	}
	deleted := &workloadv1alpha1.SyncTarget{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.NewTime(now))}}
	drained := evict(0)
	drained.Spec.EvictAfter = nil
	drained.Status.Drain = &workloadv1alpha1.DrainStatus{State: workloadv1alpha1.DrainEmpty}
	drained.Status.Conditions = []metav1.Condition{{Type: workloadv1alpha1.SyncTargetDrained, Status: metav1.ConditionTrue}}

	tests := map[string]struct {
		target     *workloadv1alpha1.SyncTarget
		namespaces map[string]string // name to stage
		want       string
		wantWait   time.Duration
	}{
		"none":                 {&workloadv1alpha1.SyncTarget{}, nil, "", 0},
		"an earlier one":       {drained, nil, "", 0},
		"in the future":        {evict(time.Hour), map[string]string{"a": "Pending"}, "Waiting 1", time.Hour},
		"under way":            {evict(0), map[string]string{"a": "Applying", "b": "Blocked"}, "Draining 2: b Blocked, a Applying; Drained False Draining", progress},
		"Lesson04 blocked":     {evict(0), map[string]string{"b": "Blocked", "a": "Blocked"}, "Blocked 2: a Blocked, b Blocked; Drained False Blocked", progress},
		"nothing left":         {evict(0), nil, "Empty 0; Drained True Empty", 0},
		"deletion drains":      {deleted, map[string]string{"a": "Removing"}, "Draining 1: a Removing; Drained False Draining", progress},
		"deletion, blocked":    {deleted, map[string]string{"a": "Blocked"}, "Blocked 1: a Blocked; Drained False Blocked", progress},
		"deleted with nothing": {deleted, nil, "Empty 0; Drained True Empty", 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := &Controller{syncTarget: func(string) (logicalcluster.Key, bool) { return logicalcluster.Key{}, false }, deps: Deps{
				StageOf: func(_ context.Context, namespace logicalcluster.Key, _ string) handover.Stage {
					return handover.Stage{Stage: tc.namespaces[namespace.Name]}
				},
				Path: func(cluster logicalcluster.Name) (logicalcluster.Path, bool) { return "root:" + cluster.Path(), true },
			}}
			var keys []logicalcluster.Key
			for namespace := range tc.namespaces {
				keys = append(keys, logicalcluster.Key{Cluster: "team", Name: namespace})
			}
			st := tc.target.DeepCopy()
			wait := c.setDrain(t.Context(), st, "t1", keys, now)
			if diff := cmp.Diff(tc.want, sayDrain(t, st)); diff != "" {
				t.Errorf("drain (-want +got):\n%s", diff)
			}
			if wait != tc.wantWait {
				t.Errorf("look again after %s, want %s", wait, tc.wantWait)
			}
		})
	}
}

func sayDrain(t *testing.T, st *workloadv1alpha1.SyncTarget) string {
	t.Helper()
	out := ""
	if d := st.Status.Drain; d != nil {
		var namespaces []string
		for _, n := range d.Namespaces {
			if n.Workspace != "root:team" {
				t.Errorf("workspace = %q, want root:team", n.Workspace)
			}
			namespaces = append(namespaces, n.Namespace+" "+n.Stage)
		}
		out = string(d.State) + " " + string('0'+d.Remaining)
		if len(namespaces) > 0 && d.State != workloadv1alpha1.DrainWaiting {
			out += ": " + strings.Join(namespaces, ", ")
		}
	}
	if c := meta.FindStatusCondition(st.Status.Conditions, workloadv1alpha1.SyncTargetDrained); c != nil {
		out += "; Drained " + string(c.Status) + " " + c.Reason
	}
	return out
}
