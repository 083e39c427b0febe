package authz

import (
	"context"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/kubernetes/pkg/apis/rbac"
	clusterrolepolicy "k8s.io/kubernetes/pkg/registry/rbac/clusterrole/policybased"
	clusterrolebindingpolicy "k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding/policybased"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	rolepolicy "k8s.io/kubernetes/pkg/registry/rbac/role/policybased"
	rolebindingpolicy "k8s.io/kubernetes/pkg/registry/rbac/rolebinding/policybased"
	"k8s.io/kubernetes/pkg/registry/rbac/validation"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/server/storage"
)

// StorageProvider is upstream's provider of rbac.authorization.k8s.io for many clusters.
//
// Whoever binds or writes a role must hold what it grants. Upstream looks that up in the
// stores of one cluster, where the bootstrap roles (admin, edit, view) are not; here the
// authorizer's own view is asked, in which they are.
//
// A GET of a ClusterRole that the workspace does not have answers with the system
// cluster's. LIST and WATCH show the workspace's own alone, so that what they show is
// what can be changed here. A ClusterRole created in the workspace under such a name
// takes the place of the built-in one.
type StorageProvider struct {
	rbacrest.RESTStorageProvider
	Registry *storage.Registry
}

var _ genericapiserver.PostStartHookProvider = StorageProvider{}

// NewRESTStorage puts upstream's checks, over another view, around upstream's stores.
func (p StorageProvider) NewRESTStorage(resources serverstorage.APIResourceConfigSource, options generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info, err := p.RESTStorageProvider.NewRESTStorage(resources, options)
	if err != nil {
		return info, err
	}
	all := getter{registry: p.Registry, withSystem: true}
	rules := validation.NewDefaultRuleResolver(all, all, all, all)
	for version, stores := range info.VersionedResourcesStorageMap {
		for resource, store := range stores {
			if stores[resource], err = p.withRules(store, rules); err != nil {
				return info, fmt.Errorf("cannot serve %s in version %q: %w", resource, version, err)
			}
		}
	}
	return info, nil
}

func (p StorageProvider) withRules(store rest.Storage, rules validation.AuthorizationRuleResolver) (rest.Storage, error) {
	check := p.Authorizer
	switch s := store.(type) {
	case *rolepolicy.Storage:
		return rolepolicy.NewStorage(s.StandardStorage, check, rules), nil
	case *rolebindingpolicy.Storage:
		return rolebindingpolicy.NewStorage(s.StandardStorage, check, rules), nil
	case *clusterrolebindingpolicy.Storage:
		return clusterrolebindingpolicy.NewStorage(s.StandardStorage, check, rules), nil
	case *clusterrolepolicy.Storage:
		return clusterRoles{
			Storage: clusterrolepolicy.NewStorage(s.StandardStorage, check, rules),
			reader:  p.Registry.Reader(rbac.Resource("clusterroles")),
		}, nil
	default:
		return nil, fmt.Errorf("unknown storage %T", store)
	}
}

// clusterRoles shows the built-in roles to who asks for one by name.
type clusterRoles struct {
	*clusterrolepolicy.Storage
	reader storage.Reader
}

// Get returns the cluster's own role, or the built-in one.
func (c clusterRoles) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := c.Storage.Get(ctx, name, options)
	if !apierrors.IsNotFound(err) {
		return obj, err
	}
	if builtIn, ok := c.builtIn(ctx, name); ok {
		return builtIn, nil
	}
	return obj, err
}

// Update says of a built-in role, which GET has shown, why it cannot be changed.
func (c clusterRoles) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, forceCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	obj, created, err := c.Storage.Update(ctx, name, info, create, update, forceCreate, options)
	return obj, created, c.explain(ctx, name, err)
}

// Delete is Update's counterpart.
func (c clusterRoles) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	obj, deleted, err := c.Storage.Delete(ctx, name, validate, options)
	return obj, deleted, c.explain(ctx, name, err)
}

func (c clusterRoles) explain(ctx context.Context, name string, err error) error {
	if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	// A conflict means that the request carries the built-in role's uid, or a real one.
	if _, own := c.Storage.Get(ctx, name, &metav1.GetOptions{}); !apierrors.IsNotFound(own) {
		return err
	}
	if _, ok := c.builtIn(ctx, name); !ok {
		return err
	}
	return apierrors.NewForbidden(rbacv1.Resource("clusterroles"), name,
		errors.New("it is built in and cannot be changed in a workspace; create a ClusterRole of another name, or one of this name to take its place here"))
}

func (c clusterRoles) builtIn(ctx context.Context, name string) (*rbac.ClusterRole, bool) {
	if cluster, err := logicalcluster.FromContext(ctx); err != nil || !cluster.Valid() || cluster == logicalcluster.System {
		return nil, false
	}
	role := &rbac.ClusterRole{}
	if err := c.reader.Get(logicalcluster.WithCluster(ctx, logicalcluster.System), "", name, role); err != nil {
		return nil, false
	}
	return role, true
}
