package workload

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/atomicfile"
	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/cli/session"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/syncer/manifest"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

// Unsync is the use case of "workload unsync": a physical cluster leaves.
type Unsync struct {
	Console *console.Console
	Session *session.Session
	Clock   clock.WithTicker
}

// UnsyncInput of Unsync.
type UnsyncInput struct {
	// Name of the SyncTarget.
	Name string
	// Yes answers the question whether to do it.
	Yes bool
	// Force drains also where nothing can take over.
	Force bool
	// Timeout ends the wait; 0 means none.
	Timeout time.Duration
	// ClusterKubeconfig is a file that leads to the physical cluster; without one the
	// manifest of what is to be deleted there is printed.
	ClusterKubeconfig string
	// Output is a file for that manifest; empty or "-" means stdout.
	Output string
}

// Do drains a cluster, then removes the syncer from it, the SyncTarget, and the syncer's
// identity. It can be run again wherever it stopped. The identity is kept where the
// cluster does not answer: should it return, its syncer has to be told that it is to
// remove what it has.
func (u *Unsync) Do(ctx context.Context, in UnsyncInput) error {
	client, err := u.Session.SyncTargets(u.Session.Path)
	if err != nil {
		return err
	}
	target, err := getTarget(ctx, u.Session, client, in.Name)
	if apierrors.IsNotFound(err) && u.hasIdentity(ctx, in.Name) {
		return u.forget(ctx, in)
	}
	if err != nil {
		return err
	}
	id := names.InstanceID(logicalcluster.From(target), target.UID)
	cluster, err := openCluster(in.ClusterKubeconfig, id, u.Clock)
	if err != nil {
		return err
	}
	if cluster != nil {
		if err := cluster.check(ctx); err != nil {
			return err
		}
	}
	if !in.Yes {
		if err := u.Console.Confirm(ctx, "Drain "+in.Name+" and remove it from "+string(u.Session.Path)+"?", "kubectl kcp workload unsync "+in.Name+" --yes"); err != nil {
			return err
		}
	}
	if err := u.leave(ctx, client, in, cluster); err != nil {
		return err
	}
	if cluster == nil {
		u.Console.Note("synctarget/%s removed", in.Name)
		return u.deliver(in, id)
	}
	u.Console.Print("synctarget/%s removed", in.Name)
	return nil
}

// leave drains the target and removes it. The time is for both together.
func (u *Unsync) leave(ctx context.Context, client *targetClient, in UnsyncInput, cluster *physicalCluster) error {
	start := u.Clock.Now()
	drain := &Drain{Console: u.Console, Session: u.Session, Clock: u.Clock}
	drainInput := DrainInput{Name: in.Name, Force: in.Force, Timeout: in.Timeout}
	target, err := drain.begin(ctx, client, drainInput, u.Console.Note)
	if err != nil {
		return err
	}
	progress := u.Console.Progress(u.Clock)
	defer progress.Done()
	f := &follower{Drain: drain, progress: progress, client: client, name: in.Name, leaving: true}
	if err := drain.wait(ctx, f, target, drainInput); err != nil {
		return err
	}
	waitCtx := ctx
	if in.Timeout > 0 {
		var cancel context.CancelFunc
		waitCtx, cancel = context.WithTimeout(ctx, max(in.Timeout-u.Clock.Since(start), 0))
		defer cancel()
	}
	missing := ""
	wait := func(what string) {
		missing = what
		progress.Live("%s: %s", in.Name, what)
	}
	err = u.remove(waitCtx, client, target, cluster, f, wait)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return problem.Cancelled("stopped before %s was gone", in.Name).Hint("go on: kubectl kcp workload unsync %s", in.Name).Because(err)
	case waitCtx.Err() != nil:
		return problem.New("%s is not gone after %s: %s", in.Name, in.Timeout, missing).Hint("go on: kubectl kcp workload unsync %s", in.Name).Because(err)
	}
	return err
}

// remove takes away what is left of a target that f has seen empty, or abandoned. It calls
// wait with what is still there.
func (u *Unsync) remove(ctx context.Context, client *targetClient, target *workloadv1alpha1.SyncTarget, cluster *physicalCluster, f *follower, wait func(what string)) error {
	if cluster != nil {
		f.progress.Note("Removing the syncer from the physical cluster.")
		if err := cluster.remove(ctx, wait); err != nil {
			return err
		}
	}
	if f.abandoned {
		f.progress.Note("%s does not answer: the server gives it up when it has been silent for long enough.", target.Name)
	}
	wait("the server has not removed the sync target yet")
	if err := u.deleteTarget(ctx, client, target); err != nil {
		return err
	}
	if f.abandoned && cluster == nil {
		f.progress.Note("The identity of its syncer is kept, so that the cluster cleans up should it return. To remove that as well: kubectl kcp workload unsync %s --yes", target.Name)
		return nil
	}
	return u.deleteIdentity(ctx, target.Name)
}

// deleteTarget deletes the SyncTarget and waits until it is gone.
func (u *Unsync) deleteTarget(ctx context.Context, client *targetClient, target *workloadv1alpha1.SyncTarget) error {
	err := client.Delete(ctx, target.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(target.UID)}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	for {
		now, err := client.Get(ctx, target.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && now.UID != target.UID:
			return nil
		case err != nil && ctx.Err() == nil && lasting(err):
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-u.Clock.After(retryAfter):
		}
	}
}

// forget removes the identity of a syncer whose SyncTarget is gone.
func (u *Unsync) forget(ctx context.Context, in UnsyncInput) error {
	if !in.Yes {
		question := "Sync target " + in.Name + " is gone. Remove the identity of its syncer from " + string(u.Session.Path) + "?"
		if err := u.Console.Confirm(ctx, question, "kubectl kcp workload unsync "+in.Name+" --yes"); err != nil {
			return err
		}
	}
	if err := u.deleteIdentity(ctx, in.Name); err != nil {
		return err
	}
	u.Console.Note("The identity of %s was removed; the sync target was gone already.", in.Name)
	return nil
}

func (u *Unsync) hasIdentity(ctx context.Context, name string) bool {
	bindings, err := u.Session.ClusterRoleBindings(u.Session.Path)
	if err != nil {
		return false
	}
	_, err = bindings.Get(ctx, roleName(name), metav1.GetOptions{})
	return err == nil
}

// deleteIdentity takes back what "workload sync" gave the syncer.
func (u *Unsync) deleteIdentity(ctx context.Context, name string) error {
	bindings, err := u.Session.ClusterRoleBindings(u.Session.Path)
	if err != nil {
		return err
	}
	roles, err := u.Session.ClusterRoles(u.Session.Path)
	if err != nil {
		return err
	}
	accounts, err := u.Session.ServiceAccounts(u.Session.Path, workloadv1alpha1.SyncersNamespace)
	if err != nil {
		return err
	}
	for _, remove := range []func() error{
		func() error { return accounts.Delete(ctx, name, metav1.DeleteOptions{}) },
		func() error { return roles.Delete(ctx, roleName(name), metav1.DeleteOptions{}) },
		// Last: by it the rest is found when the command is run again.
		func() error { return bindings.Delete(ctx, roleName(name), metav1.DeleteOptions{}) },
	} {
		if err := remove(); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// deliver prints what is to be deleted from the physical cluster.
func (u *Unsync) deliver(in UnsyncInput, id string) error {
	doc, err := manifest.RenderRemoval(id)
	if err != nil {
		return err
	}
	file := "FILE"
	if in.Output != "" && in.Output != "-" {
		file = in.Output
		err = atomicfile.Write(in.Output, doc, 0o600)
	} else {
		_, err = u.Console.Out.Write(doc)
	}
	if err != nil {
		return err
	}
	u.Console.Note("Now remove the syncer from the physical cluster: kubectl --kubeconfig CLUSTER delete --ignore-not-found -f %s", file)
	return nil
}
