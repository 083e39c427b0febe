package workspace

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/13eedeaf/kcp/pkg/apis/core/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/workspaces"
)

const (
	// AdminBindingName is the ClusterRoleBinding that makes the creator of a workspace
	// its admin.
	AdminBindingName = "workspace-admin"

	// defaultServiceAccount is the account of pods that name none.
	defaultServiceAccount = "default"

	// conditionReady sums a Workspace up.
	conditionReady = "Ready"
)

// initializer fills new logical clusters. Its fields are what it does to the world.
type initializer struct {
	getType      func(ctx context.Context, ref *tenancyv1alpha1.WorkspaceTypeReference) (*tenancyv1alpha1.WorkspaceType, error)
	fill         Fill
	updateStatus func(ctx context.Context, ws *tenancyv1alpha1.Workspace) error
}

func newInitializer(deps Deps, types *informer.Informer[*tenancyv1alpha1.WorkspaceType]) initializer {
	return initializer{
		getType: func(ctx context.Context, ref *tenancyv1alpha1.WorkspaceTypeReference) (*tenancyv1alpha1.WorkspaceType, error) {
			cluster := logicalcluster.Root
			if ref.Path != "" {
				var err error
				if cluster, err = deps.Index.Resolve(ctx, logicalcluster.Path(ref.Path)); err != nil {
					return nil, err
				}
			}
			if typ, ok := types.Get(cluster, "", ref.Name); ok {
				return typ, nil
			}
			return deps.Clients.WorkspaceTypes(cluster).Get(ctx, ref.Name, metav1.GetOptions{})
		},
		fill: deps.Fill,
		updateStatus: func(ctx context.Context, ws *tenancyv1alpha1.Workspace) error {
			_, err := deps.Clients.Workspaces(logicalcluster.From(ws)).UpdateStatus(ctx, ws, metav1.UpdateOptions{})
			return err
		},
	}
}

// initialize fills the logical cluster of ws, a copy of its own, and makes it Ready, or
// says in its status why not.
func (i initializer) initialize(ctx context.Context, ws *tenancyv1alpha1.Workspace) error {
	objects, err := i.objects(ctx, ws)
	if err == nil {
		klog.FromContext(ctx).V(2).Info("Initializing logical cluster", "workspace", ws.Annotations[logicalcluster.PathAnnotationKey])
		ready := ws.DeepCopy()
		ready.Status.Phase = tenancyv1alpha1.WorkspacePhaseReady
		meta.SetStatusCondition(&ready.Status.Conditions, metav1.Condition{
			Type: conditionReady, Status: metav1.ConditionTrue, Reason: "Initialized", ObservedGeneration: ws.Generation,
		})
		err = i.fill(ctx, logicalcluster.Name(ws.Spec.Cluster), objects, ready)
	}
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		// Somebody has written to ws; the event of it comes, or has come.
		return err
	}
	changed := meta.SetStatusCondition(&ws.Status.Conditions, metav1.Condition{
		Type: conditionReady, Status: metav1.ConditionFalse, Reason: "InitializationFailed", Message: err.Error(), ObservedGeneration: ws.Generation,
	})
	if !changed && ws.Status.Phase == tenancyv1alpha1.WorkspacePhaseInitializing {
		return err
	}
	ws.Status.Phase = tenancyv1alpha1.WorkspacePhaseInitializing
	if updateErr := i.updateStatus(ctx, ws); updateErr != nil && !apierrors.IsNotFound(updateErr) {
		return errors.Join(err, updateErr)
	}
	return err
}

// objects returns what the logical cluster of ws begins with.
func (i initializer) objects(ctx context.Context, ws *tenancyv1alpha1.Workspace) ([]informer.Object, error) {
	if !logicalcluster.Name(ws.Spec.Cluster).Valid() || ws.Spec.Type == nil {
		return nil, fmt.Errorf("workspace %q has no logical cluster or no type", ws.Name)
	}
	objects := []informer.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: defaultServiceAccount}},
	}
	binding, err := adminBinding(ws)
	if err != nil {
		return nil, err
	}
	if binding != nil {
		objects = append(objects, binding)
	}
	typ, err := i.getType(ctx, ws.Spec.Type)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("cannot read workspace type %q: %w", ws.Spec.Type.Name, err)
	}
	if err == nil && typ.Spec.DefaultPlacement {
		objects = append(objects, &schedulingv1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Name: schedulingv1alpha1.DefaultPlacementName}})
	}
	return append(objects, workspaces.NewLogicalCluster(
		logicalcluster.Path(ws.Annotations[logicalcluster.PathAnnotationKey]),
		ws.Spec.Type.Name,
		ws.Spec.URL,
		&corev1alpha1.LogicalClusterOwner{Cluster: string(logicalcluster.From(ws)), Name: ws.Name, UID: string(ws.UID)},
	)), nil
}

// adminBinding makes the creator of a workspace its admin. It is nil for the server
// itself, and for service accounts, which exist in their own workspace only: one of the
// same name inside would be somebody else.
func adminBinding(ws *tenancyv1alpha1.Workspace) (*rbacv1.ClusterRoleBinding, error) {
	owner, err := workspaces.OwnerOf(ws)
	if err != nil {
		return nil, err
	}
	if owner.Username == "" || strings.HasPrefix(owner.Username, "system:") {
		return nil, nil
	}
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: AdminBindingName},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: owner.Username}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}, nil
}
