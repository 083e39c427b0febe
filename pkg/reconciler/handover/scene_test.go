package handover

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/scheduling"
)

// scene builds a State in which namespace web with a Deployment of 2 replicas is on east
// and being moved to west.
type scene struct {
	s        *State
	targets  map[string]*scheduling.Target
	decision scheduling.Result
}

func newScene() *scene {
	c := &scene{targets: map[string]*scheduling.Target{
		"east": {Key: "east", Ready: true}, "west": {Key: "west", Ready: true},
	}}
	c.s = &State{
		Placement: "default", DrainDeadline: time.Minute, Now: now,
		Target: func(key string) *scheduling.Target { return c.targets[key] },
		Workloads: []Workload{{Resource: deployments.GroupResource(), Object: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"name": "web", "uid": "u", "generation": int64(1)},
			"spec":     map[string]any{"replicas": int64(2)},
		}}}},
	}
	return c
}

// on adds an Assignment, older ones first.
func (c *scene) on(target string, opts ...func(*schedulingv1alpha1.Assignment)) *scene {
	a := &schedulingv1alpha1.Assignment{
		ObjectMeta: metav1.ObjectMeta{
			Name: target, Generation: 1, Finalizers: []string{workloadv1alpha1.SyncerFinalizer},
			CreationTimestamp: metav1.NewTime(now.Add(time.Duration(len(c.s.Assignments)) * time.Second)),
		},
		Spec: schedulingv1alpha1.AssignmentSpec{Location: "default", LocationPath: schedulingv1alpha1.GatewayLocationPath, Target: target, Placement: "default", State: schedulingv1alpha1.AssignmentActive},
	}
	for _, opt := range opts {
		opt(a)
	}
	c.s.Assignments = append(c.s.Assignments, a)
	return c
}

func draining(a *schedulingv1alpha1.Assignment) {
	a.Spec.State = schedulingv1alpha1.AssignmentDraining
	since := metav1.NewMicroTime(now.Add(-time.Second))
	a.Spec.DrainingSince = &since
	a.Generation = 2
}

func deadline(d time.Duration) func(*schedulingv1alpha1.Assignment) {
	return func(a *schedulingv1alpha1.Assignment) {
		at := metav1.NewMicroTime(now.Add(d))
		a.Spec.DrainDeadline = &at
		a.Generation = 3
	}
}

func deleting(a *schedulingv1alpha1.Assignment) {
	at := metav1.NewTime(now)
	a.DeletionTimestamp = &at
}

// pods reports so many available pods of the Deployment at a target.
func (c *scene) pods(target string, available int, opts ...func(*workloadv1alpha1.SyncReport)) *scene {
	r := &workloadv1alpha1.SyncReport{
		Spec: workloadv1alpha1.SyncReportSpec{Target: target, Group: "apps", Version: "v1", Resource: "deployments", Name: "web", UID: "u"},
		Report: workloadv1alpha1.SyncReportData{Synced: true, AppliedGeneration: 1, ObservedGeneration: 1, Status: &runtime.RawExtension{
			Raw: fmt.Appendf(nil, `{"replicas":2,"updatedReplicas":2,"availableReplicas":%d}`, available),
		}},
	}
	for _, opt := range opts {
		opt(r)
	}
	c.s.Reports = append(c.s.Reports, r)
	return c
}

func of(resource, name string) func(*workloadv1alpha1.SyncReport) {
	return func(r *workloadv1alpha1.SyncReport) { r.Spec.Group, r.Spec.Resource, r.Spec.Name = "", resource, name }
}

func refused(r *workloadv1alpha1.SyncReport) { r.Report.Synced, r.Report.Message = false, "no" }

// ingress gives the namespace an Ingress with endpoints behind it.
func (c *scene) ingress() *scene {
	c.s.HasIngress, c.s.HasEndpoints = true, true
	return c
}

// gateway adds a gateway whose lease runs out after left, and what it reports.
func (c *scene) gateway(name string, left time.Duration, entries ...networkingv1alpha1.GatewayTargetReport) *scene {
	c.s.Gateways = append(c.s.Gateways, &networkingv1alpha1.GatewayInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       networkingv1alpha1.GatewayInstanceSpec{RenewTime: metav1.NewMicroTime(now.Add(left - 10*time.Second)), LeaseDurationSeconds: 10},
	})
	c.s.GatewayReports = append(c.s.GatewayReports, &networkingv1alpha1.GatewayReport{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1alpha1.GatewayReportSpec{Targets: entries},
	})
	return c
}

func sends(target string, healthy int32) networkingv1alpha1.GatewayTargetReport {
	return networkingv1alpha1.GatewayTargetReport{Target: target, AssignmentGeneration: 1, Accepting: true, Backends: 2, HealthyBackends: healthy}
}

func stopped(target string, generation, inFlight int64) networkingv1alpha1.GatewayTargetReport {
	return networkingv1alpha1.GatewayTargetReport{Target: target, AssignmentGeneration: generation, Backends: 2, HealthyBackends: 2, InFlight: inFlight}
}

// to decides that the namespace belongs on west and must leave east; opts change that.
func (c *scene) to(target string, moves ...scheduling.Move) *scene {
	c.decision.Desired = []scheduling.Assigned{{Target: target, Location: "default", LocationPath: schedulingv1alpha1.GatewayLocationPath, Reason: "chosen"}}
	c.decision.Moves = moves
	return c
}

func (c *scene) blocked(why string) *scene { c.decision.Blocked = why; return c }

func (c *scene) nowhere(moves ...scheduling.Move) *scene {
	c.decision.Moves = moves
	c.decision.Blocked = "no target"
	return c
}

func drained(target string) scheduling.Move {
	return scheduling.Move{Target: target, Reason: "drained"}
}

// say puts actions into words, one a line.
func say(a Actions) string {
	var out []string
	for _, c := range a.Create {
		out = append(out, "create "+c.Name)
	}
	for _, u := range a.Update {
		line := u.Assignment.Name + ":"
		if u.SpecChanged {
			line += " " + string(u.Assignment.Spec.State)
			if d := u.Assignment.Spec.DrainDeadline; d != nil {
				line += " until +" + d.Sub(now).String()
			}
		}
		if u.StatusChanged {
			line += fmt.Sprintf(" [%s] %s", u.Assignment.Status.Phase, u.Assignment.Status.Message)
		}
		out = append(out, line)
	}
	for _, d := range a.Delete {
		out = append(out, "delete "+d.Name)
	}
	for _, d := range a.Release {
		out = append(out, "release "+d.Name)
	}
	for _, target := range []string{"east", "west"} {
		if s, ok := a.Stages[target]; ok {
			out = append(out, target+" stage "+s.Stage)
		}
	}
	if !a.Next.IsZero() {
		out = append(out, "next +"+a.Next.Sub(now).String())
	}
	return strings.Join(out, "\n")
}

func (c *scene) silent(target string) *scene { return c.silentFor(target, time.Hour) }

func (c *scene) silentFor(target string, d time.Duration) *scene {
	c.targets[target].Ready = false
	c.targets[target].LastHeartbeat = now.Add(-d)
	return c
}

func (c *scene) tolerates(silence time.Duration) *scene { c.s.Toleration = silence; return c }

func (c *scene) gone(target string) *scene { delete(c.targets, target); return c }

func (c *scene) writtenOff(target string) *scene { c.targets[target].Deleting = true; return c }

func (c *scene) namespaceDeleted() *scene { c.s.Deleting = true; return c }
