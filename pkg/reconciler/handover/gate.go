package authn

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Keys of user.Info's Extra below this prefix are set by this package alone: what an
// issuer maps there is dropped, impersonating them is refused.
const reservedPrefix = "authentication.kcp.io/"

const (
	// ClusterKey holds the logical cluster of a service account.
	ClusterKey = reservedPrefix + "cluster-name"
	// IssuerKey holds the URL of the issuer that vouches for the user.
	IssuerKey = reservedPrefix + "issuer"
)

// outsideWorkspaces are the values of a request's cluster when its URL names none: the
// server's front handler says system, a request that never passed it has none.
var outsideWorkspaces = []logicalcluster.Name{"", logicalcluster.System}

// ClusterOf returns the logical cluster that a service account belongs to; false for
// everyone else, and for a service account that is impersonated, which is only as good
// as the cluster it is impersonated in.
func ClusterOf(u user.Info) (logicalcluster.Name, bool) {
	if !isServiceAccount(u) {
		return "", false
	}
	values := u.GetExtra()[ClusterKey]
	if len(values) != 1 {
		return "", false
	}
	name := logicalcluster.Name(values[0])
	return name, name.Valid()
}

// IssuerOf returns the URL of the OpenID issuer that vouches for the user; false for
// users who are known otherwise. The user's UID is the subject within that issuer.
func IssuerOf(u user.Info) (string, bool) {
	values := u.GetExtra()[IssuerKey]
	if len(values) != 1 {
		return "", false
	}
	return values[0], true
}

func isServiceAccount(u user.Info) bool {
	return strings.HasPrefix(u.GetName(), serviceaccount.ServiceAccountUsernamePrefix)
}

func isServiceAccountGroup(name string) bool {
	return name == serviceaccount.AllServiceAccountsGroup || strings.HasPrefix(name, serviceaccount.ServiceAccountGroupPrefix)
}

// clusterOf returns the cluster that the request speaks to, "" when none is known.
func clusterOf(req *http.Request) logicalcluster.Name {
	name, err := logicalcluster.FromContext(req.Context())
	if err != nil {
		return ""
	}
	return name
}

// withExtra returns a copy of u in which key has this value and no other reserved key is
// set. Identities are shared by the token cache, so they are never changed in place.
func withExtra(u user.Info, key, value string) user.Info {
	extra := maps.Clone(u.GetExtra())
	maps.DeleteFunc(extra, func(k string, _ []string) bool { return strings.HasPrefix(k, reservedPrefix) })
	if extra == nil {
		extra = map[string][]string{}
	}
	extra[key] = []string{value}
	return &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra}
}

// FilterImpersonation refuses requests that impersonate a reserved Extra key: whoever may
// impersonate everything in a workspace of their own must not become a service account
// of another. It goes before upstream's impersonation filter.
func FilterImpersonation(next http.Handler, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for header := range req.Header {
			if key, ok := impersonatedExtra(header); ok && strings.HasPrefix(key, reservedPrefix) {
				err := apierrors.NewForbidden(schema.GroupResource{Group: authenticationv1.GroupName, Resource: "userextras"}, key,
					fmt.Errorf("keys below %s are set by the server only", reservedPrefix))
				responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, w, req)
				return
			}
		}
		next.ServeHTTP(w, req)
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
