package workspace

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
)

func TestDelete(t *testing.T) {
	child := object{gvr: clients.WorkspacesResource, name: "child", uid: "1", finalizers: tenancyv1alpha1.WorkspaceFinalizer}
	namespace := object{gvr: namespacesResource, name: "default", uid: "2"}
	syncers := object{gvr: namespacesResource, name: "kcp-syncers", uid: "4"}
	assignment := object{gvr: clients.AssignmentsResource, namespace: "default", name: "a", uid: "3", finalizers: "workload.kcp.io/syncer"}
	target := object{gvr: clients.SyncTargetsResource, name: "us-east1", uid: "4", finalizers: "example.com/x"}
	aChild := func(name string, change ...func(*tenancyv1alpha1.Workspace)) *tenancyv1alpha1.Workspace {
		ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, f := range change {
			f(ws)
		}
		return ws
	}
	isGoing := func(ws *tenancyv1alpha1.Workspace) {
		now := metav1.Now()
		ws.DeletionTimestamp = &now
	}
	going := func(o object) object {
		o.deleting = true
		return o
	}
	deletingStatus := func(message string) []tenancyv1alpha1.WorkspaceStatus {
		return []tenancyv1alpha1.WorkspaceStatus{{
			Phase:      tenancyv1alpha1.WorkspacePhaseDeleting,
			Conditions: []metav1.Condition{{Type: "Ready", Status: "False", Reason: "Deleting", Message: message}},
		}}
	}
	later := reconciler.Result{RequeueAfter: lookAgain}
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "logicalclusters"}, "idteam", errDown)
	const finalize = `{"metadata":{"finalizers":["example.com/other"],"resourceVersion":"7","uid":"uid"}}`

	cases := map[string]struct {
		children              []*tenancyv1alpha1.Workspace
		finalized, namespaces []object
		ws                    *tenancyv1alpha1.Workspace
		fail                  map[string]error
		want                  reconciler.Result
		wantDeleted           []string
		wantStatus            []tenancyv1alpha1.WorkspaceStatus
		// wantPurged is the cluster, and the Workspace if it goes too.
		wantPurged string
		wantPatch  string
		wantErr    error
	}{
		"nothing to wait for":               {ws: newWorkspace(), namespaces: []object{namespace}, wantPurged: "idteam and team"},
		"somebody else keeps the workspace": {namespaces: []object{namespace}, wantPurged: "idteam", wantPatch: finalize},
		"something came in meanwhile": {
			ws: newWorkspace(), fail: map[string]error{"purge": conflict}, wantErr: conflict, wantPurged: "idteam and team",
		},
		"children first": {
			children:  []*tenancyv1alpha1.Workspace{aChild("a"), aChild("b", isGoing)},
			finalized: []object{assignment}, namespaces: []object{namespace},
			wantDeleted: []string{`workspaces.tenancy.kcp.io "a"`}, wantStatus: deletingStatus(waitingForChildren),
		},
		"children, asked already": {
			ws:       newWorkspace(func(ws *tenancyv1alpha1.Workspace) { ws.Status = deletingStatus(waitingForChildren)[0] }),
			children: []*tenancyv1alpha1.Workspace{aChild("a", isGoing), aChild("b", isGoing)},
		},
		"child cannot be deleted": {
			children: []*tenancyv1alpha1.Workspace{aChild("a")},
			fail:     map[string]error{"delete": errDown}, wantErr: errDown,
			wantDeleted: []string{`workspaces.tenancy.kcp.io "a"`}, wantStatus: deletingStatus(`cannot delete workspace "a": down`),
		},
		"children that have just come": {
			finalized: []object{child, assignment, target}, namespaces: []object{namespace},
			want: later, wantDeleted: []string{child.String()},
			wantStatus: deletingStatus(`waiting for workspaces.tenancy.kcp.io "child" (core.kcp.io/logicalcluster), assignments.scheduling.kcp.io "default/a" (workload.kcp.io/syncer), synctargets.workload.kcp.io "us-east1" (example.com/x)`),
		},
		"then namespaces": {
			finalized: []object{assignment}, namespaces: []object{namespace, syncers},
			want: later, wantDeleted: []string{namespace.String(), syncers.String()},
			wantStatus: deletingStatus(`waiting for namespaces "default", namespaces "kcp-syncers", assignments.scheduling.kcp.io "default/a" (workload.kcp.io/syncer)`),
		},
		"targets before their syncers' identity": {
			finalized: []object{assignment, target}, namespaces: []object{namespace, syncers},
			want: later, wantDeleted: []string{namespace.String(), target.String()},
			wantStatus: deletingStatus(`waiting for namespaces "default", synctargets.workload.kcp.io "us-east1" (example.com/x), assignments.scheduling.kcp.io "default/a" (workload.kcp.io/syncer)`),
		},
		"then the rest": {
			finalized: []object{target}, want: later, wantDeleted: []string{target.String()},
			wantStatus: deletingStatus(`waiting for synctargets.workload.kcp.io "us-east1" (example.com/x)`),
		},
		"asked already": {
			finalized: []object{going(child)}, want: later,
			wantStatus: deletingStatus(`waiting for workspaces.tenancy.kcp.io "child" (core.kcp.io/logicalcluster)`),
		},
		"no news": {
			ws: newWorkspace(func(ws *tenancyv1alpha1.Workspace) {
				ws.Status = deletingStatus(`waiting for synctargets.workload.kcp.io "us-east1" (example.com/x)`)[0]
			}),
			finalized: []object{going(target)}, want: later,
		},
		"gone meanwhile": {
			finalized: []object{target}, want: later, wantDeleted: []string{target.String()},
			fail:       map[string]error{"delete": apierrors.NewNotFound(schema.GroupResource{}, "us-east1")},
			wantStatus: deletingStatus(`waiting for synctargets.workload.kcp.io "us-east1" (example.com/x)`),
		},
		"content cannot be listed": {
			fail: map[string]error{"list": errDown}, wantErr: errDown,
			wantStatus: deletingStatus(`cannot list the content of logical cluster "idteam": down`),
		},
		"object cannot be deleted": {
			finalized: []object{target}, wantDeleted: []string{target.String()},
			fail: map[string]error{"delete": errDown}, wantErr: errDown,
			wantStatus: deletingStatus(`cannot delete synctargets.workload.kcp.io "us-east1": down`),
		},
		"storage fails": {
			fail: map[string]error{"purge": errDown}, wantErr: errDown, wantPurged: "idteam",
			wantStatus: deletingStatus(`down`),
		},
		"finalizer cannot be removed": {
			fail: map[string]error{"patch": errDown}, wantErr: errDown, wantPurged: "idteam", wantPatch: finalize,
		},
		"workspace gone meanwhile": {
			fail: map[string]error{"patch": apierrors.NewNotFound(schema.GroupResource{}, "team")}, wantPurged: "idteam", wantPatch: finalize,
		},
		"no cluster yet": {
			ws:        newWorkspace(func(ws *tenancyv1alpha1.Workspace) { ws.Spec.Cluster = "" }),
			wantPatch: `{"metadata":{"finalizers":[],"resourceVersion":"7","uid":"uid"}}`,
		},
		"not ours to delete": {
			ws:        newWorkspace(func(ws *tenancyv1alpha1.Workspace) { ws.Finalizers = []string{"example.com/other"} }),
			finalized: []object{target},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ws := tc.ws
			if ws == nil {
				ws = newWorkspace(func(ws *tenancyv1alpha1.Workspace) {
					ws.Finalizers = []string{tenancyv1alpha1.WorkspaceFinalizer, "example.com/other"}
				})
			}
			var (
				deleted []string
				status  []tenancyv1alpha1.WorkspaceStatus
				purged  string
				patch   string
			)
			d := deleter{
				listChildren: func(logicalcluster.Name) []*tenancyv1alpha1.Workspace { return tc.children },
				listFinalized: func(_ context.Context, c logicalcluster.Name) ([]object, deleteFunc, error) {
					return tc.finalized, func(_ context.Context, ws *tenancyv1alpha1.Workspace) error {
						purged = string(c)
						if ws != nil {
							purged += " and " + ws.Name
						}
						return tc.fail["purge"]
					}, tc.fail["list"]
				},
				listNamespaces: func(context.Context, logicalcluster.Name) ([]object, error) { return tc.namespaces, nil },
				deleteObject: func(_ context.Context, _ logicalcluster.Name, o object) error {
					deleted = append(deleted, o.String())
					return tc.fail["delete"]
				},
				updateStatus: func(_ context.Context, ws *tenancyv1alpha1.Workspace) error {
					status = append(status, *ws.Status.DeepCopy())
					return nil
				},
				patch: func(_ context.Context, _ *tenancyv1alpha1.Workspace, data []byte) error {
					patch = string(data)
					return tc.fail["patch"]
				},
			}
			got, err := d.delete(t.Context(), ws)
			if !cmp.Equal(tc.wantErr, err, cmpopts.EquateErrors()) {
				t.Errorf("error %v, want %v", err, tc.wantErr)
			}
			for what, diff := range map[string]string{
				"result":  cmp.Diff(tc.want, got),
				"deleted": cmp.Diff(tc.wantDeleted, deleted),
				"purged":  cmp.Diff(tc.wantPurged, purged),
				"patch":   cmp.Diff(tc.wantPatch, patch),
				"status":  cmp.Diff(tc.wantStatus, status, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")),
			} {
				if diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
		})
	}
}

func TestWaitingFor(t *testing.T) {
	var objs []object
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		objs = append(objs, object{gvr: namespacesResource, name: name})
	}
	want := `waiting for namespaces "a", namespaces "b", namespaces "c", namespaces "d", namespaces "e" and 2 more`
	if got := waitingFor(objs); got != want {
		t.Errorf("waitingFor() = %q, want %q", got, want)
	}
}
