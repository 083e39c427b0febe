package authn

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/server/apierror"
)

// A tenant is admin of a workspace and so may impersonate anybody in it. What follows
// keeps such an identity in that workspace.

type impersonatedKey struct{}

// FilterImpersonation refuses requests that impersonate a reserved Extra key, and
// remembers for ActsIn in which cluster a request impersonates. It goes before
// upstream's impersonation filter and after the cluster is known.
func FilterImpersonation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		impersonates := false
		for header := range req.Header {
			if key, ok := impersonatedExtra(header); ok && strings.HasPrefix(key, reservedPrefix) {
				err := apierrors.NewForbidden(schema.GroupResource{Group: authenticationv1.GroupName, Resource: "userextras"}, key,
					fmt.Errorf("keys below %s are set by the server only", reservedPrefix))
				apierror.Write(w, req, err)
				return
			}
			impersonates = impersonates || strings.HasPrefix(strings.ToLower(header), "impersonate-")
		}
		if impersonates {
			req = req.WithContext(context.WithValue(req.Context(), impersonatedKey{}, clusterOf(req)))
		}
		next.ServeHTTP(w, req)
	})
}

// ActsIn reports whether the identity of the request in ctx may be taken as it is in
// this cluster. Whoever authorizes in a cluster that is not the request's own (a virtual
// workspace, a reference to another workspace) must ask this first. It is false for
//   - a service account of another cluster, who only has the same name as the one here;
//   - anybody impersonated in another workspace: its admin had the right to do so there.
func ActsIn(ctx context.Context, u user.Info, cluster logicalcluster.Name) bool {
	where, impersonated := ctx.Value(impersonatedKey{}).(logicalcluster.Name)
	if impersonated && where != cluster && !slices.Contains(outsideWorkspaces, where) {
		return false
	}
	if !isServiceAccount(u) && !slices.ContainsFunc(u.GetGroups(), isServiceAccountGroup) {
		return true
	}
	owner, ok := ClusterOf(u)
	return ok && owner == cluster
}

// WithLocalServiceAccounts gives an impersonated service account the cluster of the
// request that impersonates it, which is the only one it can come from. It goes inside
// upstream's chain, around the API handler, so that admission and everything else behind
// it can rely on ActsIn. Outside workspaces nothing is given.
func WithLocalServiceAccounts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		u, ok := request.UserFrom(req.Context())
		cluster := clusterOf(req)
		if !ok || !isServiceAccount(u) || !cluster.Valid() || slices.Contains(outsideWorkspaces, cluster) {
			next.ServeHTTP(w, req)
			return
		}
		if _, known := ClusterOf(u); known {
			next.ServeHTTP(w, req)
			return
		}
		local := withExtra(u, ClusterKey, string(cluster))
		next.ServeHTTP(w, req.WithContext(request.WithUser(req.Context(), local)))
	})
}

// impersonatedExtra reads the key out of a header's name just as upstream's filter does.
func impersonatedExtra(header string) (string, bool) {
	prefix := strings.ToLower(authenticationv1.ImpersonateUserExtraHeaderPrefix)
	encoded, ok := strings.CutPrefix(strings.ToLower(header), prefix)
	if !ok {
		return "", false
	}
	key, err := url.PathUnescape(encoded)
	if err != nil {
		return encoded, true
	}
	return key, true
}
