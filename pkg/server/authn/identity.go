package authn

import (
	"maps"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

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
