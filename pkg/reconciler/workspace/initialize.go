package workspace

import (
	"context"
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

	// conditionReady sums a Workspace up.
	conditionReady = "Ready"
)

// initializer fills new logical clusters. Its fields create one object each in the
// given cluster.
type initializer struct {
	getType              func(ctx context.Context, ref *tenancyv1alpha1.WorkspaceTypeReference) (*tenancyv1alpha1.WorkspaceType, error)
	createNamespace      func(ctx context.Context, cluster logicalcluster.Name, obj *corev1.Namespace) error
	createBinding        func(ctx context.Context, cluster logicalcluster.Name, obj *rbacv1.ClusterRoleBinding) error
	createPlacement      func(ctx context.Context, cluster logicalcluster.Name, obj *schedulingv1alpha1.Placement) error
	createLogicalCluster func(ctx context.Context, cluster logicalcluster.Name, obj *corev1alpha1.LogicalCluster) error
	updateStatus         func(ctx context.Context, ws *tenancyv1alpha1.Workspace) error
}

func newInitializer(deps Deps, types *informer.Informer[*tenancyv1alpha1.WorkspaceType]) initializer {
	c := deps.Clients
	opts := metav1.CreateOptions{}
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
			return c.WorkspaceTypes(cluster).Get(ctx, ref.Name, metav1.GetOptions{})
		},
		createNamespace: func(ctx context.Context, cluster logicalcluster.Name, obj *corev1.Namespace) error {
			_, err := c.Core(cluster).Namespaces().Create(ctx, obj, opts)
			return err
		},
		createBinding: func(ctx context.Context, cluster logicalcluster.Name, obj *rbacv1.ClusterRoleBinding) error {
			_, err := c.RBAC(cluster).ClusterRoleBindings().Create(ctx, obj, opts)
			return err
		},
		createPlacement: func(ctx context.Context, cluster logicalcluster.Name, obj *schedulingv1alpha1.Placement) error {
			_, err := c.Placements(cluster).Create(ctx, obj, opts)
			return err
		},
		createLogicalCluster: func(ctx context.Context, cluster logicalcluster.Name, obj *corev1alpha1.LogicalCluster) error {
			_, err := c.LogicalClusters(cluster).Create(ctx, obj, opts)
			return err
		},
		updateStatus: func(ctx context.Context, ws *tenancyv1alpha1.Workspace) error {
			_, err := c.Workspaces(logicalcluster.From(ws)).UpdateStatus(ctx, ws, metav1.UpdateOptions{})
			return err
		},
	}
}

// initialize fills the logical cluster of ws, a copy of its own, and makes it Ready.
func (i initializer) initialize(ctx context.Context, ws *tenancyv1alpha1.Workspace) error {
	err := i.fill(ctx, ws)
	ready := metav1.Condition{Type: conditionReady, Status: metav1.ConditionTrue, Reason: "Initialized", ObservedGeneration: ws.Generation}
	phase := tenancyv1alpha1.WorkspacePhaseReady
	if err != nil {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "InitializationFailed", err.Error()
		phase = tenancyv1alpha1.WorkspacePhaseInitializing
	}
	changed := meta.SetStatusCondition(&ws.Status.Conditions, ready)
	if !changed && ws.Status.Phase == phase {
		return err
	}
	ws.Status.Phase = phase
	if updateErr := i.updateStatus(ctx, ws); err == nil && !apierrors.IsNotFound(updateErr) {
		err = updateErr
	}
	return err
}

func (i initializer) fill(ctx context.Context, ws *tenancyv1alpha1.Workspace) error {
	cluster := logicalcluster.Name(ws.Spec.Cluster)
	if !cluster.Valid() || ws.Spec.Type == nil {
		return fmt.Errorf("workspace %q has no logical cluster or no type", ws.Name)
	}
	klog.FromContext(ctx).V(2).Info("Initializing logical cluster", "workspace", ws.Annotations[logicalcluster.PathAnnotationKey])
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault}}
	if err := i.createNamespace(ctx, cluster, namespace); ignoreExists(err) != nil {
		return fmt.Errorf("cannot create namespace %q: %w", namespace.Name, err)
	}
	binding, err := adminBinding(ws)
	if err != nil {
		return err
	}
	if binding != nil {
		if err := i.createBinding(ctx, cluster, binding); ignoreExists(err) != nil {
			return fmt.Errorf("cannot create ClusterRoleBinding %q: %w", binding.Name, err)
		}
	}
	typ, err := i.getType(ctx, ws.Spec.Type)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot read workspace type %q: %w", ws.Spec.Type.Name, err)
	}
	if err == nil && typ.Spec.DefaultPlacement {
		placement := &schedulingv1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Name: schedulingv1alpha1.DefaultPlacementName}}
		if err := i.createPlacement(ctx, cluster, placement); ignoreExists(err) != nil {
			return fmt.Errorf("cannot create Placement %q: %w", placement.Name, err)
		}
	}
	logicalCluster := workspaces.NewLogicalCluster(
		logicalcluster.Path(ws.Annotations[logicalcluster.PathAnnotationKey]),
		ws.Spec.Type.Name,
		ws.Spec.URL,
		&corev1alpha1.LogicalClusterOwner{Cluster: string(logicalcluster.From(ws)), Name: ws.Name, UID: string(ws.UID)},
	)
	if err := i.createLogicalCluster(ctx, cluster, logicalCluster); ignoreExists(err) != nil {
		return fmt.Errorf("cannot create the LogicalCluster: %w", err)
	}
	return nil
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

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
