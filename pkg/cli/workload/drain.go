package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/cli/session"
)

const (
	// blockedFor is how long a drain must stay blocked before the command gives up: a
	// candidate that is just coming back unblocks it.
	blockedFor = 3 * time.Second
	// retryAfter is the pause before the server is asked again when it is away.
	retryAfter = time.Second
)

// Drain is the use case of "drain".
type Drain struct {
	Console *console.Console
	Session *session.Session
	Clock   clock.WithTicker
}

// DrainInput of Drain.
type DrainInput struct {
	Name string
	// Detach returns as soon as the drain is asked for.
	Detach bool
	// Force drains also where nothing can take over.
	Force bool
	// Timeout ends the wait, not the drain; 0 means none.
	Timeout time.Duration
}

// Do asks the server to empty a cluster, shows each namespace's stage, and returns when
// the cluster is empty or the drain is blocked.
func (d *Drain) Do(ctx context.Context, in DrainInput) error {
	client, err := d.Session.SyncTargets(d.Session.Path)
	if err != nil {
		return err
	}
	target, err := d.begin(ctx, client, in, d.Console.Print)
	if err != nil {
		return err
	}
	if in.Detach {
		return nil
	}
	progress := d.Console.Progress(d.Clock)
	err = d.wait(ctx, &follower{Drain: d, progress: progress, client: client, name: in.Name}, target, in)
	progress.Done()
	if err != nil {
		return err
	}
	d.Console.Print("%s", d.Console.Good(in.Name+" is empty: safe to work on"))
	return nil
}

// wait follows a drain that was begun.
func (d *Drain) wait(ctx context.Context, f *follower, target *workloadv1alpha1.SyncTarget, in DrainInput) error {
	waitCtx, cancel := ctx, context.CancelFunc(func() {})
	if in.Timeout > 0 {
		waitCtx, cancel = context.WithTimeout(ctx, in.Timeout)
	}
	defer cancel()
	f.uid, f.evictAfter = string(target.UID), *target.Spec.EvictAfter
	err := f.run(waitCtx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return problem.Cancelled("stopped watching; the drain of %s goes on in the server", in.Name).
			Hint("end it: kubectl kcp uncordon %s", in.Name).Because(err)
	case waitCtx.Err() != nil:
		return problem.New("%s is not empty after %s: %s", in.Name, in.Timeout, f.missing()).
			Hint("the drain goes on in the server; wait again: kubectl kcp drain %s", in.Name).Because(err)
	}
	return err
}

// begin sets what drains a target, unless it is set, and says so.
func (d *Drain) begin(ctx context.Context, client *targetClient, in DrainInput, say func(format string, args ...any)) (*workloadv1alpha1.SyncTarget, error) {
	t, err := getTarget(ctx, d.Session, client, in.Name)
	if err != nil {
		return nil, err
	}
	now := d.Clock.Now()
	patch := map[string]any{}
	if !t.Spec.Unschedulable {
		patch["unschedulable"] = true
	}
	if !draining(t, now) {
		// The API keeps whole seconds.
		patch["evictAfter"] = metav1.NewTime(now.Truncate(time.Second))
	}
	if in.Force && !t.Spec.ForceEvict {
		patch["forceEvict"] = true
	}
	if len(patch) == 0 {
		say("synctarget/%s already draining", in.Name)
		return t, nil
	}
	if t, err = patchSpec(ctx, client, in.Name, patch); err != nil {
		return nil, err
	}
	if t.Spec.EvictAfter == nil {
		return nil, problem.New("the server did not keep evictAfter of sync target %q", in.Name).
			Hint("see its version: kubectl kcp version")
	}
	say("synctarget/%s draining", in.Name)
	return t, nil
}

// follower watches one drain to its end.
type follower struct {
	*Drain
	progress   *console.Progress
	client     *targetClient
	name, uid  string
	evictAfter metav1.Time
	// leaving means that the target will be deleted: it is enough that nothing is left but
	// what a cluster that does not answer would have to remove.
	leaving bool
	// abandoned is set where that was the case.
	abandoned bool

	status *workloadv1alpha1.DrainStatus
	// shown is the stage and message last printed for each namespace.
	shown        map[string]string
	blockedSince time.Time
}

// run returns nil when the target is empty.
func (f *follower) run(ctx context.Context) error {
	away := false
	f.progress.Live("%s: waiting for the server to begin", f.name)
	for {
		target, err := f.client.Get(ctx, f.name, metav1.GetOptions{})
		if err == nil {
			if away {
				f.progress.Note("The server is back.")
				away = false
			}
			done, err := f.follow(ctx, target)
			if done || err != nil {
				return err
			}
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if apierrors.IsNotFound(err) && f.leaving {
			return nil
		}
		if apierrors.IsNotFound(err) {
			return problem.New("sync target %q was deleted while it was drained", f.name).Hint("kubectl kcp workload list").Because(err)
		}
		if lasting(err) {
			return err
		}
		if !away {
			f.progress.Note("%s; waiting for the server to come back.", problem.Describe(err, problem.About{}).Error())
			away = true
		}
		f.blockedSince = time.Time{} // what was not seen does not count
		if err := f.pause(ctx, retryAfter); err != nil {
			return err
		}
	}
}

// lasting tells an answer that will not change by itself from a server that is away.
func lasting(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || problem.Describe(err, problem.About{}).Code() != problem.ExitError
}

func (f *follower) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-f.Clock.After(d):
		return nil
	}
}

// follow watches from a state that was read. It returns false when the watch ended and
// the state has to be read anew.
func (f *follower) follow(ctx context.Context, target *workloadv1alpha1.SyncTarget) (done bool, err error) {
	if done, err := f.observe(target); done || err != nil {
		return done, err
	}
	w, err := f.client.Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("metadata.name", f.name).String(),
		ResourceVersion: target.ResourceVersion,
	})
	if err != nil {
		return false, f.pause(ctx, retryAfter)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-f.blockedTimer():
			return false, f.blocked()
		case event, open := <-w.ResultChan():
			if !open || event.Type == watch.Error || event.Type == watch.Deleted {
				return false, f.pause(ctx, retryAfter)
			}
			if t, ok := event.Object.(*workloadv1alpha1.SyncTarget); ok && t.Name == f.name {
				if done, err := f.observe(t); done || err != nil {
					return done, err
				}
			}
		}
	}
}

// blockedTimer fires when the drain has been blocked for long enough.
func (f *follower) blockedTimer() <-chan time.Time {
	if f.blockedSince.IsZero() {
		return nil
	}
	return f.Clock.After(blockedFor - f.Clock.Since(f.blockedSince))
}

// observe takes a state of the target in.
func (f *follower) observe(t *workloadv1alpha1.SyncTarget) (done bool, err error) {
	if string(t.UID) != f.uid {
		return false, problem.New("sync target %q was deleted and made again while it was drained", f.name).Hint("kubectl kcp workload list")
	}
	if t.Spec.EvictAfter == nil {
		return false, problem.New("the drain of %s was ended by someone: it was uncordoned", f.name).Hint("start it again: kubectl kcp drain %s", f.name)
	}
	// Another drain may have set its own instant; the one in force counts.
	f.evictAfter = *t.Spec.EvictAfter
	s := t.Status.Drain
	if s == nil || s.ObservedEvictAfter == nil || !s.ObservedEvictAfter.Equal(&f.evictAfter) {
		return false, nil // of an earlier drain
	}
	f.status = s
	f.show()
	if s.State != workloadv1alpha1.DrainBlocked {
		f.blockedSince = time.Time{}
	} else if f.blockedSince.IsZero() {
		f.blockedSince = f.Clock.Now()
	}
	f.abandoned = f.leaving && abandoned(t)
	return s.State == workloadv1alpha1.DrainEmpty || f.abandoned, nil
}

// abandoned reports whether all that a target still has is to be removed by a syncer that
// is not heard.
func abandoned(t *workloadv1alpha1.SyncTarget) bool {
	s := t.Status.Drain
	if !meta.IsStatusConditionFalse(t.Status.Conditions, workloadv1alpha1.SyncTargetReady) || s.Remaining == 0 || int(s.Remaining) != len(s.Namespaces) {
		return false
	}
	return !slices.ContainsFunc(s.Namespaces, func(n workloadv1alpha1.DrainNamespace) bool { return n.Stage != "Removing" })
}

// show prints what changed since the last time.
func (f *follower) show() {
	now := make(map[string]string, len(f.status.Namespaces))
	for _, n := range f.status.Namespaces {
		key := n.Workspace + "/" + n.Namespace
		stage := n.Stage
		if n.Message != "" {
			stage += ": " + n.Message
		}
		now[key] = stage
		if f.shown[key] != stage {
			f.progress.Note("  %s  %s", key, stage)
		}
	}
	if int(f.status.Remaining) == len(f.status.Namespaces) { // else the list is cut off, and absence says nothing
		for _, key := range sorted(f.shown) {
			if _, still := now[key]; !still {
				f.progress.Note("  %s  gone", key)
			}
		}
	}
	f.shown = now
	f.progress.Live("%s", f.summary())
}

// summary counts the namespaces that are left, and those of each stage.
func (f *follower) summary() string {
	stages := map[string]int{}
	for _, n := range f.status.Namespaces {
		stages[n.Stage]++
	}
	parts := make([]string, 0, len(stages))
	for _, stage := range sorted(stages) {
		parts = append(parts, fmt.Sprintf("%d %s", stages[stage], stage))
	}
	left := strconv.Itoa(int(f.status.Remaining)) + " namespaces left"
	if f.status.Remaining == 1 {
		left = "1 namespace left"
	}
	return strings.TrimSuffix(f.name+": "+left+": "+strings.Join(parts, ", "), ": ")
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// blocked ends the wait; the reasons stand in the lines that show printed.
func (f *follower) blocked() error {
	return problem.New("drain of %s is blocked: %s; what runs there stays", f.name, count(f.status.Remaining)).
		Hint("make room elsewhere and the drain goes on by itself, or end it: kubectl kcp uncordon %s", f.name)
}

func count(remaining int32) string {
	if remaining == 1 {
		return "1 namespace cannot move"
	}
	return fmt.Sprintf("%d namespaces cannot move", remaining)
}

// missing says what a drain still waits for.
func (f *follower) missing() string {
	if f.status == nil {
		return "the server has not begun the drain"
	}
	const most = 3
	parts := make([]string, 0, most)
	for _, n := range f.status.Namespaces[:min(most, len(f.status.Namespaces))] {
		parts = append(parts, strings.TrimSuffix(fmt.Sprintf("%s/%s is in stage %s: %s", n.Workspace, n.Namespace, n.Stage, n.Message), ": "))
	}
	if more := int(f.status.Remaining) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}
