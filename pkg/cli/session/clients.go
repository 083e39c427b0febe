package session

import (
	"context"
	"encoding/json"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/gentype"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/13eedeaf/kcp/pkg/apis/core/v1alpha1"
	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Scheme knows the kinds that commands read and write; client-go's own would register
// every kind of Kubernetes at each start.
var (
	Scheme = newScheme()
	codecs = serializer.NewCodecFactory(Scheme)
	params = runtime.NewParameterCodec(Scheme)
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, rbacv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
		corev1alpha1.AddToScheme, tenancyv1alpha1.AddToScheme, workloadv1alpha1.AddToScheme, schedulingv1alpha1.AddToScheme,
		networkingv1alpha1.AddToScheme,
	} {
		_ = add(s) // it adds types to an empty scheme, where nothing can clash
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}

// object is what typed clients handle.
type object interface {
	runtime.Object
	metav1.Object
}

// Client reads and writes one kind in one workspace.
type Client[T object, L runtime.Object] = gentype.ClientWithList[T, L]

func client[T object, L runtime.Object](s *Session, below string, gv schema.GroupVersion, resource, namespace string, item func() T, list func() L) (*Client[T, L], error) {
	rest, err := s.REST(below, gv)
	if err != nil {
		return nil, err
	}
	return gentype.NewClientWithList(resource, rest, params, namespace, item, list), nil
}

// Workspaces returns a client for the children of a workspace.
func (s *Session) Workspaces(in logicalcluster.Path) (*Client[*tenancyv1alpha1.Workspace, *tenancyv1alpha1.WorkspaceList], error) {
	return client(s, in.RequestPath(), tenancyv1alpha1.GroupVersion, "workspaces", "",
		func() *tenancyv1alpha1.Workspace { return &tenancyv1alpha1.Workspace{} },
		func() *tenancyv1alpha1.WorkspaceList { return &tenancyv1alpha1.WorkspaceList{} })
}

// WorkspaceTypes returns a client for the types that stand in a workspace.
func (s *Session) WorkspaceTypes(in logicalcluster.Path) (*Client[*tenancyv1alpha1.WorkspaceType, *tenancyv1alpha1.WorkspaceTypeList], error) {
	return client(s, in.RequestPath(), tenancyv1alpha1.GroupVersion, "workspacetypes", "",
		func() *tenancyv1alpha1.WorkspaceType { return &tenancyv1alpha1.WorkspaceType{} },
		func() *tenancyv1alpha1.WorkspaceTypeList { return &tenancyv1alpha1.WorkspaceTypeList{} })
}

// LogicalClusters returns a client for the inside view of a workspace.
func (s *Session) LogicalClusters(in logicalcluster.Path) (*Client[*corev1alpha1.LogicalCluster, *corev1alpha1.LogicalClusterList], error) {
	return client(s, in.RequestPath(), corev1alpha1.GroupVersion, "logicalclusters", "",
		func() *corev1alpha1.LogicalCluster { return &corev1alpha1.LogicalCluster{} },
		func() *corev1alpha1.LogicalClusterList { return &corev1alpha1.LogicalClusterList{} })
}

// SyncTargets returns a client for the sync targets of a workspace.
func (s *Session) SyncTargets(in logicalcluster.Path) (*Client[*workloadv1alpha1.SyncTarget, *workloadv1alpha1.SyncTargetList], error) {
	return client(s, in.RequestPath(), workloadv1alpha1.GroupVersion, "synctargets", "",
		func() *workloadv1alpha1.SyncTarget { return &workloadv1alpha1.SyncTarget{} },
		func() *workloadv1alpha1.SyncTargetList { return &workloadv1alpha1.SyncTargetList{} })
}

// EffectiveLocations returns a client for the Locations that a workspace has and
// inherits. It only lists.
func (s *Session) EffectiveLocations(in logicalcluster.Path) (*Client[*schedulingv1alpha1.Location, *schedulingv1alpha1.LocationList], error) {
	return client(s, "/services/locations"+in.RequestPath(), schedulingv1alpha1.GroupVersion, "locations", "",
		func() *schedulingv1alpha1.Location { return &schedulingv1alpha1.Location{} },
		func() *schedulingv1alpha1.LocationList { return &schedulingv1alpha1.LocationList{} })
}

// Placements returns a client for the placements of a workspace.
func (s *Session) Placements(in logicalcluster.Path) (*Client[*schedulingv1alpha1.Placement, *schedulingv1alpha1.PlacementList], error) {
	return client(s, in.RequestPath(), schedulingv1alpha1.GroupVersion, "placements", "",
		func() *schedulingv1alpha1.Placement { return &schedulingv1alpha1.Placement{} },
		func() *schedulingv1alpha1.PlacementList { return &schedulingv1alpha1.PlacementList{} })
}

// Namespaces returns a client for the namespaces of a workspace.
func (s *Session) Namespaces(in logicalcluster.Path) (*Client[*corev1.Namespace, *corev1.NamespaceList], error) {
	return client(s, in.RequestPath(), corev1.SchemeGroupVersion, "namespaces", "",
		func() *corev1.Namespace { return &corev1.Namespace{} },
		func() *corev1.NamespaceList { return &corev1.NamespaceList{} })
}

// ServiceAccounts returns a client for the service accounts of a namespace.
func (s *Session) ServiceAccounts(in logicalcluster.Path, namespace string) (*Client[*corev1.ServiceAccount, *corev1.ServiceAccountList], error) {
	return client(s, in.RequestPath(), corev1.SchemeGroupVersion, "serviceaccounts", namespace,
		func() *corev1.ServiceAccount { return &corev1.ServiceAccount{} },
		func() *corev1.ServiceAccountList { return &corev1.ServiceAccountList{} })
}

// ClusterRoles returns a client for the cluster roles of a workspace.
func (s *Session) ClusterRoles(in logicalcluster.Path) (*Client[*rbacv1.ClusterRole, *rbacv1.ClusterRoleList], error) {
	return client(s, in.RequestPath(), rbacv1.SchemeGroupVersion, "clusterroles", "",
		func() *rbacv1.ClusterRole { return &rbacv1.ClusterRole{} },
		func() *rbacv1.ClusterRoleList { return &rbacv1.ClusterRoleList{} })
}

// ClusterRoleBindings returns a client for the cluster role bindings of a workspace.
func (s *Session) ClusterRoleBindings(in logicalcluster.Path) (*Client[*rbacv1.ClusterRoleBinding, *rbacv1.ClusterRoleBindingList], error) {
	return client(s, in.RequestPath(), rbacv1.SchemeGroupVersion, "clusterrolebindings", "",
		func() *rbacv1.ClusterRoleBinding { return &rbacv1.ClusterRoleBinding{} },
		func() *rbacv1.ClusterRoleBindingList { return &rbacv1.ClusterRoleBindingList{} })
}

// RequestToken asks for a token of a service account.
func (s *Session) RequestToken(ctx context.Context, in logicalcluster.Path, namespace, name string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	rest, err := s.REST(in.RequestPath(), corev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	out := &authenticationv1.TokenRequest{}
	err = rest.Post().Namespace(namespace).Resource("serviceaccounts").Name(name).SubResource("token").Body(request).Do(ctx).Into(out)
	return out, err
}

// Home returns the user's home workspace and its path. The server makes it at first
// use.
func (s *Session) Home(ctx context.Context) (logicalcluster.Path, error) {
	rest, err := s.REST("", tenancyv1alpha1.GroupVersion)
	if err != nil {
		return "", err
	}
	data, err := rest.Get().AbsPath("/services/home").Do(ctx).Raw()
	if err != nil {
		return "", err
	}
	var ws tenancyv1alpha1.Workspace
	if json.Unmarshal(data, &ws) == nil {
		if path, err := logicalcluster.ParsePath(ws.Annotations[logicalcluster.PathAnnotationKey]); err == nil {
			return path, nil
		}
	}
	return "", problem.New("%s did not say which workspace is your home", s.Base).Hint("see whether it is healthy: kubectl kcp version")
}

// ServerVersion returns what the server says of itself.
func (s *Session) ServerVersion(ctx context.Context) (*version.Info, error) {
	rest, err := s.REST("", schema.GroupVersion{Version: "v1"})
	if err != nil {
		return nil, err
	}
	data, err := rest.Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var info version.Info
	if err := json.Unmarshal(data, &info); err != nil {
		return nil, problem.New("%s answered /version with something that is not a version", s.Base).Because(err)
	}
	return &info, nil
}

// Username asks the server who the session's user is to it.
func (s *Session) Username(ctx context.Context) (string, error) {
	rest, err := s.REST(s.Path.RequestPath(), authenticationv1.SchemeGroupVersion)
	if err != nil {
		return "", err
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := rest.Post().Resource("selfsubjectreviews").Body(review).Do(ctx).Into(review); err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}

// Access checks that a workspace exists and that the user may enter it. It returns the
// server's answer: a forbidden or a not-found status.
func (s *Session) Access(ctx context.Context, path logicalcluster.Path) error {
	clusters, err := s.LogicalClusters(path)
	if err != nil {
		return err
	}
	_, err = clusters.Get(ctx, corev1alpha1.LogicalClusterName, metav1.GetOptions{})
	if err == nil || !apierrors.IsForbidden(err) {
		return err
	}
	// Someone who may enter need not be allowed to read the LogicalCluster.
	forbidden := err
	rest, err := s.REST(path.RequestPath(), authorizationv1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "access", Path: "/"},
	}}
	if err := rest.Post().Resource("selfsubjectaccessreviews").Body(review).Do(ctx).Into(review); err != nil {
		return errors.Join(forbidden, err)
	}
	if !review.Status.Allowed {
		return forbidden
	}
	return nil
}
