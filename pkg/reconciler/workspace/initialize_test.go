package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	corev1alpha1 "github.com/13eedeaf/kcp/pkg/apis/core/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

var errDown = errors.New("down")

func newWorkspace(change ...func(*tenancyv1alpha1.Workspace)) *tenancyv1alpha1.Workspace {
	ws := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{
			Name: "team", UID: "uid", ResourceVersion: "7", Finalizers: []string{tenancyv1alpha1.WorkspaceFinalizer},
			Annotations: map[string]string{
				logicalcluster.AnnotationKey:       "idorg",
				logicalcluster.PathAnnotationKey:   "root:org:team",
				tenancyv1alpha1.OwnerAnnotationKey: `{"username":"alice"}`,
			},
		},
		Spec: tenancyv1alpha1.WorkspaceSpec{
			Type:    &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"},
			Cluster: "idteam", URL: "https://kcp.example.com/clusters/root:org:team",
		},
	}
	for _, f := range change {
		f(ws)
	}
	return ws
}

func owner(value string) func(*tenancyv1alpha1.Workspace) {
	return func(ws *tenancyv1alpha1.Workspace) { ws.Annotations[tenancyv1alpha1.OwnerAnnotationKey] = value }
}

// world records what an initializer makes; in it, what is named in fail fails.
type world struct {
	made   []string
	fail   map[string]error
	filled []informer.Object
	status []tenancyv1alpha1.WorkspaceStatus
}

func (w *world) initializer(placement bool) initializer {
	return initializer{
		getType: func(context.Context, *tenancyv1alpha1.WorkspaceTypeReference) (*tenancyv1alpha1.WorkspaceType, error) {
			return &tenancyv1alpha1.WorkspaceType{Spec: tenancyv1alpha1.WorkspaceTypeSpec{DefaultPlacement: placement}}, w.fail["type"]
		},
		fill: func(_ context.Context, c logicalcluster.Name, objects []informer.Object, ws *tenancyv1alpha1.Workspace) error {
			if err := w.fail["fill"]; err != nil {
				return err
			}
			w.filled = objects
			for _, obj := range objects {
				w.made = append(w.made, fmt.Sprintf("%s: %T %s", c, obj, cache.MetaObjectToName(obj)))
			}
			w.status = append(w.status, *ws.Status.DeepCopy())
			return nil
		},
		updateStatus: func(_ context.Context, ws *tenancyv1alpha1.Workspace) error {
			w.status = append(w.status, *ws.Status.DeepCopy())
			return w.fail["status"]
		},
	}
}

func TestInitialize(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "workspaces"}, "team", errDown)
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "workspacetypes"}, "universal")
	ready := tenancyv1alpha1.WorkspaceStatus{
		Phase:      tenancyv1alpha1.WorkspacePhaseReady,
		Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Initialized"}},
	}
	failed := func(message string) tenancyv1alpha1.WorkspaceStatus {
		return tenancyv1alpha1.WorkspaceStatus{
			Phase:      tenancyv1alpha1.WorkspacePhaseInitializing,
			Conditions: []metav1.Condition{{Type: "Ready", Status: "False", Reason: "InitializationFailed", Message: message}},
		}
	}
	all := []string{
		"idteam: *v1.Namespace default", "idteam: *v1.ServiceAccount default/default",
		"idteam: *v1.ClusterRoleBinding workspace-admin",
		"idteam: *v1alpha1.Placement default", "idteam: *v1alpha1.LogicalCluster cluster",
	}
	const placement = 3
	withoutPlacement := slices.Delete(slices.Clone(all), placement, placement+1)
	withoutBinding := slices.Delete(slices.Clone(all), 2, 3)
	cases := map[string]struct {
		ws          *tenancyv1alpha1.Workspace
		noPlacement bool
		fail        map[string]error
		wantMade    []string
		wantStatus  []tenancyv1alpha1.WorkspaceStatus
		wantErr     error
	}{
		"new": {ws: newWorkspace(), wantMade: all, wantStatus: []tenancyv1alpha1.WorkspaceStatus{ready}},
		"failed before": {
			ws:       newWorkspace(func(ws *tenancyv1alpha1.Workspace) { ws.Status = failed("down") }),
			wantMade: all, wantStatus: []tenancyv1alpha1.WorkspaceStatus{ready},
		},
		"type without placement": {
			ws: newWorkspace(), noPlacement: true,
			wantMade:   withoutPlacement,
			wantStatus: []tenancyv1alpha1.WorkspaceStatus{ready},
		},
		"type is gone": {
			ws: newWorkspace(), fail: map[string]error{"type": gone},
			wantMade:   withoutPlacement,
			wantStatus: []tenancyv1alpha1.WorkspaceStatus{ready},
		},
		"made by the server": {
			ws:         newWorkspace(owner(`{"username":"system:apiserver","groups":["system:masters"]}`)),
			wantMade:   withoutBinding,
			wantStatus: []tenancyv1alpha1.WorkspaceStatus{ready},
		},
		"made by a service account": {
			ws:         newWorkspace(owner(`{"username":"system:serviceaccount:default:ci"}`)),
			wantMade:   withoutBinding,
			wantStatus: []tenancyv1alpha1.WorkspaceStatus{ready},
		},
		"failure": {
			ws: newWorkspace(), fail: map[string]error{"fill": errDown},
			wantStatus: []tenancyv1alpha1.WorkspaceStatus{failed("down")},
			wantErr:    errDown,
		},
		"the same failure again is no news": {
			ws:      newWorkspace(func(ws *tenancyv1alpha1.Workspace) { ws.Status = failed("down") }),
			fail:    map[string]error{"fill": errDown},
			wantErr: errDown,
		},
		"written by somebody meanwhile": {
			ws: newWorkspace(), fail: map[string]error{"fill": conflict}, wantErr: conflict,
		},
		"deleted meanwhile": {
			ws: newWorkspace(), fail: map[string]error{"fill": apierrors.NewNotFound(schema.GroupResource{}, "team")},
		},
		"type cannot be read": {
			ws: newWorkspace(), fail: map[string]error{"type": errDown},
			wantStatus: []tenancyv1alpha1.WorkspaceStatus{failed(`cannot read workspace type "universal": down`)},
			wantErr:    errDown,
		},
		"failure that cannot be told": {
			ws: newWorkspace(), fail: map[string]error{"fill": errors.New("full"), "status": errDown},
			wantStatus: []tenancyv1alpha1.WorkspaceStatus{failed("full")}, wantErr: errDown,
		},
		"no cluster": {
			ws:         newWorkspace(func(ws *tenancyv1alpha1.Workspace) { ws.Spec.Cluster = "" }),
			wantStatus: []tenancyv1alpha1.WorkspaceStatus{failed(`workspace "team" has no logical cluster or no type`)},
			wantErr:    cmpopts.AnyError,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := &world{fail: tc.fail}
			err := w.initializer(!tc.noPlacement).initialize(t.Context(), tc.ws)
			if !cmp.Equal(tc.wantErr, err, cmpopts.EquateErrors()) {
				t.Errorf("error %v, want %v", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.wantMade, w.made); diff != "" {
				t.Errorf("made (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantStatus, w.status, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInitializeContent(t *testing.T) {
	w := &world{}
	if err := w.initializer(true).initialize(t.Context(), newWorkspace()); err != nil {
		t.Fatal(err)
	}
	want := []informer.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "workspace-admin"},
			Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: "alice"}},
			RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", APIGroup: "rbac.authorization.k8s.io", Name: "cluster-admin"},
		},
		&schedulingv1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		&corev1alpha1.LogicalCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "cluster", Annotations: map[string]string{"kcp.io/path": "root:org:team"}},
			Spec: corev1alpha1.LogicalClusterSpec{
				Owner: &corev1alpha1.LogicalClusterOwner{Cluster: "idorg", Name: "team", UID: "uid"},
				Type:  "universal",
			},
			Status: corev1alpha1.LogicalClusterStatus{Phase: "Ready", URL: "https://kcp.example.com/clusters/root:org:team"},
		},
	}
	if diff := cmp.Diff(want, w.filled); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}
