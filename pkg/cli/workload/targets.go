// Package workload holds the use cases around physical clusters: registering one as a
// SyncTarget, listing, cordoning and draining them.
package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/nearest"
	"github.com/13eedeaf/kcp/pkg/cli/printer"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/cli/session"
)

// targetClient reads and writes SyncTargets.
type targetClient = session.Client[*workloadv1alpha1.SyncTarget, *workloadv1alpha1.SyncTargetList]

// List is the use case of "workload list".
type List struct {
	Console *console.Console
	Session *session.Session
	Printer printer.Printer
	Now     func() time.Time
}

// Do lists the SyncTargets of the current workspace, in the way of "kubectl get nodes".
func (l *List) Do(ctx context.Context) error {
	client, err := l.Session.SyncTargets(l.Session.Path)
	if err != nil {
		return err
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(list.Items) == 0 && !l.Printer.Format.Structured() {
		l.Console.Note("No sync targets in %q.", l.Session.Path)
	}
	type target = *workloadv1alpha1.SyncTarget
	return printer.List(l.Printer, list, printer.Pointers(list.Items), []printer.Column[target]{
		{Header: "NAME", Value: func(t target) string { return t.Name }},
		{Header: "STATUS", Value: func(t target) string { return l.status(t) }},
		{Header: "NAMESPACES", Value: func(t target) string { return strconv.Itoa(int(t.Status.Namespaces)) }},
		{Header: "DRAIN", Value: func(t target) string {
			if t.Status.Drain == nil {
				return ""
			}
			return string(t.Status.Drain.State)
		}},
		{Header: "KUBERNETES", Value: func(t target) string { return t.Status.KubernetesVersion }},
		{Header: "AGE", Value: func(t target) string { return l.since(&t.CreationTimestamp) }},
		{Header: "HEARTBEAT", Wide: true, Value: func(t target) string { return l.since(t.Status.LastHeartbeatTime) }},
		{Header: "SYNCER", Wide: true, Value: func(t target) string { return t.Status.SyncerVersion }},
		{Header: "LABELS", Wide: true, Value: func(t target) string { return labels.FormatLabels(t.Labels) }},
	})
}

func (l *List) status(t *workloadv1alpha1.SyncTarget) string {
	status := "NotReady"
	if meta.IsStatusConditionTrue(t.Status.Conditions, "Ready") {
		status = "Ready"
	}
	if meta.IsStatusConditionTrue(t.Status.Conditions, workloadv1alpha1.SyncTargetVersionSkew) {
		status += ",VersionSkew"
	}
	if t.Spec.Unschedulable || draining(t, l.Now()) {
		status += ",SchedulingDisabled"
	}
	return status
}

func (l *List) since(t *metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	return duration.HumanDuration(l.Now().Sub(t.Time))
}

func draining(t *workloadv1alpha1.SyncTarget, now time.Time) bool {
	return t.Spec.EvictAfter != nil && !t.Spec.EvictAfter.After(now)
}

// Cordon is the use case of "cordon" and "uncordon".
type Cordon struct {
	Console *console.Console
	Session *session.Session
}

// Do cordons or uncordons the named SyncTargets of the current workspace. It goes on
// after one that fails, as kubectl does, and returns the first error.
func (c *Cordon) Do(ctx context.Context, names []string, cordon bool) error {
	client, err := c.Session.SyncTargets(c.Session.Path)
	if err != nil {
		return err
	}
	var first error
	for _, name := range names {
		done, err := c.one(ctx, client, name, cordon)
		if err != nil {
			if first != nil {
				c.Console.Problem(problem.Describe(first, problem.About{}))
			}
			first = err
			continue
		}
		c.Console.Print("synctarget/%s %s", name, done)
	}
	return first
}

func (c *Cordon) one(ctx context.Context, client *targetClient, name string, cordon bool) (string, error) {
	t, err := getTarget(ctx, c.Session, client, name)
	if err != nil {
		return "", err
	}
	patch := map[string]any{"unschedulable": true}
	already, done := t.Spec.Unschedulable, "cordoned"
	if !cordon {
		// All that a drain sets goes with it.
		patch = map[string]any{"unschedulable": nil, "evictAfter": nil, "forceEvict": nil}
		already, done = !t.Spec.Unschedulable && t.Spec.EvictAfter == nil && !t.Spec.ForceEvict, "uncordoned"
	}
	if already {
		return "already " + done, nil
	}
	_, err = patchSpec(ctx, client, name, patch)
	return done, err
}

// patchSpec merges fields into a SyncTarget's spec; nil removes one.
func patchSpec(ctx context.Context, client *targetClient, name string, spec map[string]any) (*workloadv1alpha1.SyncTarget, error) {
	data, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return nil, fmt.Errorf("cannot encode the change of sync target %q: %w", name, err)
	}
	return client.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: "kubectl-kcp"})
}

// getTarget reads a SyncTarget and says which there are when it is not there.
func getTarget(ctx context.Context, s *session.Session, client *targetClient, name string) (*workloadv1alpha1.SyncTarget, error) {
	t, err := client.Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return t, err
	}
	p := problem.New("sync target %q not found in workspace %q", name, s.Path).Because(err)
	list, listErr := client.List(ctx, metav1.ListOptions{})
	if listErr != nil || len(list.Items) == 0 {
		return nil, p.Hint("go to the workspace that holds the sync targets, or name it: kubectl kcp workload list --workspace root:compute")
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	if near := nearest.To(name, names); near != "" {
		return nil, p.Hint("did you mean %q? kubectl kcp workload list", near)
	}
	return nil, p.Hint("there are %s: kubectl kcp workload list", strings.Join(names[:min(len(names), 5)], ", "))
}
