package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
)

// deleteParallel is how many children of one workspace are asked to go at once.
const deleteParallel = 8

// deleteFunc is Content's Delete.
type deleteFunc = func(ctx context.Context, ws *tenancyv1alpha1.Workspace) error

// deleter empties logical clusters. Its fields are what it does to the world.
type deleter struct {
	// listChildren returns the Workspace objects in a cluster, from the informer.
	listChildren func(cluster logicalcluster.Name) []*tenancyv1alpha1.Workspace
	// listFinalized returns the objects of a cluster that somebody has to let go of,
	// child workspaces included, and how to remove the cluster if there are none.
	listFinalized  func(ctx context.Context, cluster logicalcluster.Name) ([]object, deleteFunc, error)
	listNamespaces func(ctx context.Context, cluster logicalcluster.Name) ([]object, error)
	deleteObject   func(ctx context.Context, cluster logicalcluster.Name, obj object) error
	updateStatus   func(ctx context.Context, ws *tenancyv1alpha1.Workspace) error
	patch          func(ctx context.Context, ws *tenancyv1alpha1.Workspace, data []byte) error
}

func newDeleter(deps Deps) deleter {
	content := newContent(deps.Clients, deps.Content)
	return deleter{
		listChildren:   deps.Index.ListChildren,
		listFinalized:  content.listFinalized,
		listNamespaces: content.listNamespaces,
		deleteObject:   content.delete,
		updateStatus: func(ctx context.Context, ws *tenancyv1alpha1.Workspace) error {
			_, err := deps.Clients.Workspaces(logicalcluster.From(ws)).UpdateStatus(ctx, ws, metav1.UpdateOptions{})
			return err
		},
		patch: func(ctx context.Context, ws *tenancyv1alpha1.Workspace, data []byte) error {
			_, err := deps.Clients.Workspaces(logicalcluster.From(ws)).Patch(ctx, ws.Name, types.MergePatchType, data, metav1.PatchOptions{})
			return err
		},
	}
}

// delete takes ws, a copy of its own, as far as it can go now. It is called again when
// something in the cluster has gone.
func (d deleter) delete(ctx context.Context, ws *tenancyv1alpha1.Workspace) (reconciler.Result, error) {
	if !slices.Contains(ws.Finalizers, tenancyv1alpha1.WorkspaceFinalizer) {
		return reconciler.Result{}, nil
	}
	cluster := logicalcluster.Name(ws.Spec.Cluster)
	if cluster == "" {
		return reconciler.Result{}, d.removeFinalizer(ctx, ws)
	}
	waiting, err := d.deleteChildren(ctx, cluster)
	if err != nil {
		return reconciler.Result{}, d.report(ctx, ws, err.Error(), err)
	}
	if waiting {
		return reconciler.Result{}, d.report(ctx, ws, waitingForChildren, nil)
	}
	remaining, remove, err := d.empty(ctx, cluster)
	if err != nil {
		return reconciler.Result{}, d.report(ctx, ws, err.Error(), err)
	}
	if len(remaining) > 0 {
		return reconciler.Result{RequeueAfter: lookAgain}, d.report(ctx, ws, waitingFor(remaining), nil)
	}
	klog.FromContext(ctx).V(2).Info("Deleting logical cluster", "workspace", ws.Annotations[logicalcluster.PathAnnotationKey], "logicalCluster", cluster)
	return reconciler.Result{}, d.remove(ctx, ws, remove)
}

// remove ends the logical cluster of ws, and ws with it.
func (d deleter) remove(ctx context.Context, ws *tenancyv1alpha1.Workspace, remove deleteFunc) error {
	owner := ws
	if len(ws.Finalizers) > 1 {
		// Somebody else keeps the object; nobody keeps the cluster.
		owner = nil
	}
	switch err := remove(ctx, owner); {
	case apierrors.IsConflict(err):
		return err // something came in, or ws was written: look again
	case err != nil:
		return d.report(ctx, ws, err.Error(), err)
	case owner == nil:
		return d.removeFinalizer(ctx, ws)
	}
	return nil
}

// waitingForChildren names no child and no number, so that a parent of many is not
// written once for each that goes.
const waitingForChildren = "waiting for the workspaces below to be deleted"

// deleteChildren asks for the deletion of all child workspaces; waiting until the last
// is gone. It costs requests only for those that were not asked for yet.
func (d deleter) deleteChildren(ctx context.Context, cluster logicalcluster.Name) (waiting bool, err error) {
	children := d.listChildren(cluster)
	errs := make([]error, len(children))
	workqueue.ParallelizeUntil(ctx, deleteParallel, len(children), func(n int) {
		ws := children[n]
		if ws.DeletionTimestamp != nil {
			return
		}
		obj := object{gvr: clients.WorkspacesResource, name: ws.Name, uid: ws.UID}
		if err := d.deleteObject(ctx, cluster, obj); err != nil && !apierrors.IsNotFound(err) {
			errs[n] = fmt.Errorf("cannot delete workspace %q: %w", ws.Name, err)
		}
	})
	return len(children) > 0, errors.Join(errs...)
}

// empty asks for the deletion of what cannot be removed from storage without asking,
// and returns what it has to wait for: child workspaces that have just come, then
// SyncTargets, and namespaces with what is in them, then the rest. If that is nothing, it
// returns how to remove what there is.
func (d deleter) empty(ctx context.Context, cluster logicalcluster.Name) ([]object, deleteFunc, error) {
	finalized, remove, err := d.listFinalized(ctx, cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list the content of logical cluster %q: %w", cluster, err)
	}
	if len(finalized) == 0 {
		return nil, remove, nil
	}
	next := filter(finalized, object.isWorkspace)
	if len(next) == 0 {
		// Namespaces take their content along, in the right order, and nothing new is
		// made in them meanwhile.
		if next, err = d.listNamespaces(ctx, cluster); err != nil {
			return nil, nil, fmt.Errorf("cannot list the namespaces of logical cluster %q: %w", cluster, err)
		}
		// A syncer that has lost its identity learns nothing any more, and what it runs
		// would stay for ever: its SyncTarget goes first.
		if targets := filter(finalized, object.isSyncTarget); len(targets) > 0 {
			next = append(filter(next, func(o object) bool { return o.name != workloadv1alpha1.SyncersNamespace }), targets...)
		}
	}
	if len(next) == 0 {
		next = finalized
	}
	for _, obj := range next {
		if obj.deleting {
			continue
		}
		if err := d.deleteObject(ctx, cluster, obj); err != nil && !apierrors.IsNotFound(err) {
			return nil, nil, fmt.Errorf("cannot delete %s: %w", obj, err)
		}
	}
	return append(next, filter(finalized, func(o object) bool { return !slices.Contains(next, o) })...), nil, nil
}

func filter(objs []object, keep func(object) bool) []object {
	var out []object
	for _, obj := range objs {
		if keep(obj) {
			out = append(out, obj)
		}
	}
	return out
}

// waitingFor names what a deletion waits for, the first few of it.
func waitingFor(objs []object) string {
	const most = 5
	words := make([]string, 0, most)
	for _, obj := range objs[:min(most, len(objs))] {
		word := obj.String()
		if len(obj.finalizers) > 0 {
			word += " (" + obj.finalizers + ")"
		}
		words = append(words, word)
	}
	message := "waiting for " + strings.Join(words, ", ")
	if more := len(objs) - most; more > 0 {
		message += fmt.Sprintf(" and %d more", more)
	}
	return message
}

// report writes why a workspace is not gone yet, if that is news, and returns err.
func (d deleter) report(ctx context.Context, ws *tenancyv1alpha1.Workspace, message string, err error) error {
	changed := meta.SetStatusCondition(&ws.Status.Conditions, metav1.Condition{
		Type: conditionReady, Status: metav1.ConditionFalse, Reason: "Deleting", Message: message, ObservedGeneration: ws.Generation,
	})
	if !changed && ws.Status.Phase == tenancyv1alpha1.WorkspacePhaseDeleting {
		return err
	}
	ws.Status.Phase = tenancyv1alpha1.WorkspacePhaseDeleting
	if updateErr := d.updateStatus(ctx, ws); err == nil && !apierrors.IsNotFound(updateErr) {
		return updateErr
	}
	return err
}

func (d deleter) removeFinalizer(ctx context.Context, ws *tenancyv1alpha1.Workspace) error {
	kept := slices.DeleteFunc(slices.Clone(ws.Finalizers), func(f string) bool { return f == tenancyv1alpha1.WorkspaceFinalizer })
	// uid and resourceVersion make sure that it is this object which loses it, not one
	// that got the name meanwhile.
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": ws.UID, "resourceVersion": ws.ResourceVersion, "finalizers": kept,
	}})
	if err != nil {
		return err
	}
	if err := d.patch(ctx, ws, data); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot remove the finalizer of workspace %q: %w", ws.Name, err)
	}
	return nil
}
