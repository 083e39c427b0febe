package workspace

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/13eedeaf/kcp/pkg/apis/core/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
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
	lc     *corev1alpha1.LogicalCluster
	rb     *rbacv1.ClusterRoleBinding
	status []tenancyv1alpha1.WorkspaceStatus
}

func (w *world) make(what string, cluster logicalcluster.Name) error {
	if err := w.fail[what]; err != nil {
		return err
	}
	w.made = append(w.made, string(cluster)+": "+what)
	return nil
}

func (w *world) initializer(placement bool) initializer {
	return initializer{
		getType: func(context.Context, *tenancyv1alpha1.WorkspaceTypeReference) (*tenancyv1alpha1.WorkspaceType, error) {
			return &tenancyv1alpha1.WorkspaceType{Spec: tenancyv1alpha1.WorkspaceTypeSpec{DefaultPlacement: placement}}, w.fail["type"]
		},
		createNamespace: func(_ context.Context, c logicalcluster.Name, obj *corev1.Namespace) error {
			return w.make("namespace "+obj.Name, c)
		},
		createBinding: func(_ context.Context, c logicalcluster.Name, obj *rbacv1.ClusterRoleBinding) error {
			w.rb = obj
			return w.make("binding "+obj.Name, c)
		},
		createPlacement: func(_ context.Context, c logicalcluster.Name, obj *schedulingv1alpha1.Placement) error {
			return w.make("placement "+obj.Name, c)
		},
		createLogicalCluster: func(_ context.Context, c logicalcluster.Name, obj *corev1alpha1.LogicalCluster) error {
			w.lc = obj
			return w.make("logicalcluster "+obj.Name, c)
		},
		updateStatus: func(_ context.Context, ws *tenancyv1alpha1.Workspace) error {
			w.status = append(w.status, *ws.Status.DeepCopy())
			return w.fail["status"]
		},
	}
}

func TestInitialize(t *testing.T) {
	exists := func(what string) error {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "x"}, what)
	}
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
		"idteam: namespace default", "idteam: binding workspace-admin", "idteam: placement default", "idteam: logicalcluster cluster",
	}
	cases := map[string]struct {
		ws          *tenancyv1alpha1.Workspace
		noPlacement bool
		fail        map[string]error
		wantMade    []string
		wantStatus  []tenancyv1alpha1.WorkspaceStatus
		wantErr     error
	}{
		"new": {ws: newWorkspace(), wantMade: all, wantStatus: []tenancyv1alpha1.WorkspaceStatus{ready}},
		"tried before": {
			ws:         newWorkspace(),
			fail:       map[string]error{"namespace default": exists("default"), "binding workspace-admin": exists("workspace-admin")},
			wantMade:   all[2:],
			wantStatus: []tenancyv1alpha1.WorkspaceStatus{ready},
		},
		"everything there": {
			ws: newWorkspace(),
			fail: map[string]error{
				"namespace default": exists("default"), "binding workspace-admin": exists("workspace-admin"),
				"placement default": exists("default"), "logicalcluster cluster": exists("cluster"),
			},
			wantStatus: []tenancyv1alpha1.WorkspaceStatus{ready},
		},
		"type without placement": {
			ws: newWorkspace(), noPlacement: true,
			wantMade:   []string{all[0], all[1], all[3]},
			wantStatus: []tenancyv1alpha1.WorkspaceStatus{ready},
		},
		"type is gone": {
			ws: newWorkspace(), fail: map[string]error{"type": gone},
			wantMade:   []string{all[0], all[1], all[3]},
			wantStatus: []tenancyv1alpha1.WorkspaceStatus{ready},
		},
		"made by the server": {
			ws:         newWorkspace(owner(`{"username":"system:apiserver","groups":["system:masters"]}`)),
			wantMade:   []string{all[0], all[2], all[3]},
			wantStatus: []tenancyv1alpha1.WorkspaceStatus{ready},
		},
		"made by a service account": {
			ws:         newWorkspace(owner(`{"username":"system:serviceaccount:default:ci"}`)),
			wantMade:   []string{all[0], all[2], all[3]},
			wantStatus: []tenancyv1alpha1.WorkspaceStatus{ready},
		},
		"failure in the middle": {
			ws: newWorkspace(), fail: map[string]error{"placement default": errDown},
			wantMade:   all[:2],
			wantStatus: []tenancyv1alpha1.WorkspaceStatus{failed(`cannot create Placement "default": down`)},
			wantErr:    errDown,
		},
		"the same failure again is no news": {
			ws: newWorkspace(func(ws *tenancyv1alpha1.Workspace) {
				ws.Status = failed(`cannot create the LogicalCluster: down`)
			}),
			fail:     map[string]error{"logicalcluster cluster": errDown},
			wantMade: all[:3],
			wantErr:  errDown,
		},
		"type cannot be read": {
			ws: newWorkspace(), fail: map[string]error{"type": errDown},
			wantMade:   all[:2],
			wantStatus: []tenancyv1alpha1.WorkspaceStatus{failed(`cannot read workspace type "universal": down`)},
			wantErr:    errDown,
		},
		"status cannot be written": {
			ws: newWorkspace(), fail: map[string]error{"status": errDown},
			wantMade: all, wantStatus: []tenancyv1alpha1.WorkspaceStatus{ready}, wantErr: errDown,
		},
		"deleted meanwhile": {
			ws: newWorkspace(), fail: map[string]error{"status": apierrors.NewNotFound(schema.GroupResource{}, "team")},
			wantMade: all, wantStatus: []tenancyv1alpha1.WorkspaceStatus{ready},
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
	wantLC := &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster", Annotations: map[string]string{"kcp.io/path": "root:org:team"}},
		Spec: corev1alpha1.LogicalClusterSpec{
			Owner: &corev1alpha1.LogicalClusterOwner{Cluster: "idorg", Name: "team", UID: "uid"},
			Type:  "universal",
		},
		Status: corev1alpha1.LogicalClusterStatus{Phase: "Ready", URL: "https://kcp.example.com/clusters/root:org:team"},
	}
	if diff := cmp.Diff(wantLC, w.lc); diff != "" {
		t.Errorf("LogicalCluster (-want +got):\n%s", diff)
	}
	wantBinding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "workspace-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: "alice"}},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", APIGroup: "rbac.authorization.k8s.io", Name: "cluster-admin"},
	}
	if diff := cmp.Diff(wantBinding, w.rb); diff != "" {
		t.Errorf("ClusterRoleBinding (-want +got):\n%s", diff)
	}
}
