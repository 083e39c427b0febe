package workspaces

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/13eedeaf/kcp/pkg/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
)

const (
	// UsersName is the workspace in root below which homes stand.
	UsersName = "users"
	// UsersPath is its path.
	UsersPath = logicalcluster.Path("root:" + UsersName)
	// AccessClusterRole stands in the system cluster, where every workspace finds it.
	// Bound in a workspace it lets its subject in, and nothing more.
	AccessClusterRole = "kcp:workspace-access"
)

// Types returns the WorkspaceTypes that every server has, in root.
func Types() []*tenancyv1alpha1.WorkspaceType {
	typ := func(name string, spec tenancyv1alpha1.WorkspaceTypeSpec) *tenancyv1alpha1.WorkspaceType {
		return &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	}
	return []*tenancyv1alpha1.WorkspaceType{
		typ(tenancyv1alpha1.TypeRoot, tenancyv1alpha1.WorkspaceTypeSpec{ServerOnly: true}),
		typ(tenancyv1alpha1.TypeOrganization, tenancyv1alpha1.WorkspaceTypeSpec{
			DefaultPlacement: true,
			DefaultChildType: tenancyv1alpha1.TypeTeam,
			AllowedParents:   []string{tenancyv1alpha1.TypeRoot},
		}),
		typ(tenancyv1alpha1.TypeTeam, tenancyv1alpha1.WorkspaceTypeSpec{
			DefaultPlacement: true,
			AllowedParents:   []string{tenancyv1alpha1.TypeOrganization},
		}),
		typ(tenancyv1alpha1.TypeUniversal, tenancyv1alpha1.WorkspaceTypeSpec{DefaultPlacement: true}),
		typ(tenancyv1alpha1.TypeHome, tenancyv1alpha1.WorkspaceTypeSpec{
			DefaultPlacement: true,
			AllowedParents:   []string{tenancyv1alpha1.TypeOrganization},
			ServerOnly:       true,
		}),
	}
}

// NewLogicalCluster returns the LogicalCluster object of a ready cluster. Owner is nil
// in root.
func NewLogicalCluster(path logicalcluster.Path, typ, url string, owner *corev1alpha1.LogicalClusterOwner) *corev1alpha1.LogicalCluster {
	return &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name:        corev1alpha1.LogicalClusterName,
			Annotations: map[string]string{logicalcluster.PathAnnotationKey: path.String()},
		},
		Spec:   corev1alpha1.LogicalClusterSpec{Owner: owner, Type: typ},
		Status: corev1alpha1.LogicalClusterStatus{Phase: corev1alpha1.LogicalClusterPhaseReady, URL: url},
	}
}

// Bootstrap makes what every server has: the types and the default namespace in root,
// the workspace for homes, and the shared ClusterRole in system. externalURL is the
// server's address without a path. It may be called at every start, and while the
// server is still starting: it tries again until it succeeds or ctx ends. It leaves
// alone what exists.
func Bootstrap(ctx context.Context, c *clients.Clients, externalURL string) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("bootstrap"))
	var last error
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = bootstrap(ctx, c, externalURL)
		if last != nil {
			klog.FromContext(ctx).V(2).Info("Cannot bootstrap yet, trying again", "err", last)
		}
		return last == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("cannot make what root starts with: %w", last)
	}
	return err
}

func bootstrap(ctx context.Context, c *clients.Clients, externalURL string) error {
	const root = logicalcluster.Root
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: AccessClusterRole},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}}},
	}
	if _, err := c.RBAC(logicalcluster.System).ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); ignoreExists(err) != nil {
		return fmt.Errorf("cannot create ClusterRole %q: %w", role.Name, err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault}}
	if _, err := c.Core(root).Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); ignoreExists(err) != nil {
		return fmt.Errorf("cannot create namespace %q in root: %w", namespace.Name, err)
	}
	for _, typ := range Types() {
		if _, err := c.WorkspaceTypes(root).Create(ctx, typ, metav1.CreateOptions{}); ignoreExists(err) != nil {
			return fmt.Errorf("cannot create WorkspaceType %q in root: %w", typ.Name, err)
		}
	}
	logicalCluster := NewLogicalCluster(root.Path(), tenancyv1alpha1.TypeRoot, externalURL+root.Path().RequestPath(), nil)
	if _, err := c.LogicalClusters(root).Create(ctx, logicalCluster, metav1.CreateOptions{}); ignoreExists(err) != nil {
		return fmt.Errorf("cannot create the LogicalCluster of root: %w", err)
	}
	users := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: UsersName},
		Spec: tenancyv1alpha1.WorkspaceSpec{
			Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: tenancyv1alpha1.TypeOrganization},
		},
	}
	if _, err := c.Workspaces(root).Create(ctx, users, metav1.CreateOptions{}); ignoreExists(err) != nil {
		return fmt.Errorf("cannot create workspace %q: %w", UsersPath, err)
	}
	return nil
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
