package authz

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/rbac"
	rbacv1conversions "k8s.io/kubernetes/pkg/apis/rbac/v1"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	kcpstorage "github.com/13eedeaf/kcp/pkg/server/storage"
)

// getter reads the RBAC objects of the context's cluster; withSystem adds those of the
// system cluster.
type getter struct {
	registry   *kcpstorage.Registry
	withSystem bool
}

// GetRole implements validation.RoleGetter.
func (g getter) GetRole(ctx context.Context, namespace, name string) (*rbacv1.Role, error) {
	in, out := &rbac.Role{}, &rbacv1.Role{}
	if err := g.registry.Reader(rbac.Resource("roles")).Get(ctx, namespace, name, in); err != nil {
		return nil, notFound(err, "roles", name)
	}
	return out, rbacv1conversions.Convert_rbac_Role_To_v1_Role(in, out, nil)
}

// GetClusterRole implements validation.ClusterRoleGetter. A role that the cluster does
// not have is looked up in the system cluster, also for the cluster's own bindings: they
// may name a bootstrap role such as cluster-admin.
func (g getter) GetClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error) {
	m := memoOf(ctx)
	if m != nil && m.roles[name] != nil {
		return m.roles[name], nil
	}
	in, out := &rbac.ClusterRole{}, &rbacv1.ClusterRole{}
	reader := g.registry.Reader(rbac.Resource("clusterroles"))
	err := reader.Get(ctx, "", name, in)
	if storage.IsNotFound(err) {
		err = reader.Get(logicalcluster.WithCluster(ctx, logicalcluster.System), "", name, in)
	}
	if err != nil {
		return nil, notFound(err, "clusterroles", name)
	}
	if err := rbacv1conversions.Convert_rbac_ClusterRole_To_v1_ClusterRole(in, out, nil); err != nil {
		return nil, err
	}
	if m != nil {
		m.roles[name] = out
	}
	return out, nil
}

// ListRoleBindings implements validation.RoleBindingLister.
func (g getter) ListRoleBindings(ctx context.Context, namespace string) ([]*rbacv1.RoleBinding, error) {
	list := &rbac.RoleBindingList{}
	if err := g.registry.Reader(rbac.Resource("rolebindings")).List(ctx, namespace, list); err != nil {
		return nil, err
	}
	out := make([]*rbacv1.RoleBinding, len(list.Items))
	for i := range list.Items {
		out[i] = &rbacv1.RoleBinding{}
		if err := rbacv1conversions.Convert_rbac_RoleBinding_To_v1_RoleBinding(&list.Items[i], out[i], nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ListClusterRoleBindings implements validation.ClusterRoleBindingLister.
func (g getter) ListClusterRoleBindings(ctx context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	out, err := g.clusterRoleBindings(ctx)
	if err != nil || !g.withSystem {
		return out, err
	}
	if cluster, err := logicalcluster.FromContext(ctx); err != nil || cluster == logicalcluster.System {
		return out, err
	}
	system, err := g.clusterRoleBindings(logicalcluster.WithCluster(ctx, logicalcluster.System))
	for _, binding := range system {
		// An account of the system cluster is none of this one: whoever makes one of the
		// same name here must not get upstream's rights of a controller.
		binding.Subjects = slices.DeleteFunc(slices.Clone(binding.Subjects), func(s rbacv1.Subject) bool { return s.Kind == rbacv1.ServiceAccountKind })
	}
	return append(out, system...), err
}

// memo keeps what one decision has read of its cluster, since a decision looks at the
// cluster's bindings more than once. It is used by one goroutine.
type memo struct {
	cluster  logicalcluster.Name
	bindings []*rbacv1.ClusterRoleBinding
	roles    map[string]*rbacv1.ClusterRole
}

type memoKey struct{}

// remembering returns a context in which what is read of the context's cluster is read
// once. It must not outlive the decision.
func remembering(ctx context.Context, cluster logicalcluster.Name) context.Context {
	return context.WithValue(ctx, memoKey{}, &memo{cluster: cluster, roles: map[string]*rbacv1.ClusterRole{}})
}

// memoOf returns the memo if it is one of the context's cluster.
func memoOf(ctx context.Context) *memo {
	m, ok := ctx.Value(memoKey{}).(*memo)
	if cluster, err := logicalcluster.FromContext(ctx); !ok || err != nil || cluster != m.cluster {
		return nil
	}
	return m
}

func (g getter) clusterRoleBindings(ctx context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	m := memoOf(ctx)
	if m != nil && m.bindings != nil {
		return m.bindings, nil
	}
	list := &rbac.ClusterRoleBindingList{}
	if err := g.registry.Reader(rbac.Resource("clusterrolebindings")).List(ctx, "", list); err != nil {
		return nil, err
	}
	out := make([]*rbacv1.ClusterRoleBinding, len(list.Items))
	for i := range list.Items {
		out[i] = &rbacv1.ClusterRoleBinding{}
		if err := rbacv1conversions.Convert_rbac_ClusterRoleBinding_To_v1_ClusterRoleBinding(&list.Items[i], out[i], nil); err != nil {
			return nil, err
		}
	}
	if m != nil {
		// Whoever appends to it must not write into it.
		m.bindings = slices.Clip(out)
	}
	return out, nil
}

// notFound turns the storage's error, which names a key, into the API's.
func notFound(err error, resource, name string) error {
	if storage.IsNotFound(err) {
		return apierrors.NewNotFound(rbacv1.Resource(resource), name)
	}
	return err
}
