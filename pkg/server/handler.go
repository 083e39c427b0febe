package server

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/server/apierror"
	"github.com/13eedeaf/kcp/pkg/server/authz"
	"github.com/13eedeaf/kcp/pkg/virtual"
)

// clustersPrefix starts every request to a workspace: /clusters/<path or id>/….
const clustersPrefix = "/clusters/"

// PathResolver turns what people type into a logical cluster.
type PathResolver interface {
	// Resolve returns the cluster at a path, or with an id of one segment that cluster.
	// The error is a NotFound API error when there is none.
	Resolve(ctx context.Context, path logicalcluster.Path) (logicalcluster.Name, error)
}

// withCluster puts the logical cluster that a request speaks to into its context, and
// strips the prefix that names it, before anything else looks at the path. A request
// without one speaks to the system cluster, which authorization closes to all but the
// server itself and its administrators, health and version aside.
func withCluster(next http.Handler, resolver PathResolver) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		cluster := logicalcluster.System
		if rest, ok := strings.CutPrefix(req.URL.Path, clustersPrefix); ok {
			name, path, _ := strings.Cut(rest, "/")
			if name == "" {
				apierror.Write(w, req, errNoWorkspace)
				return
			}
			if err := checkPath(req.URL, path); err != nil {
				apierror.Write(w, req, err)
				return
			}
			var err error
			if cluster, err = resolve(req.Context(), resolver, name); err != nil {
				apierror.Write(w, req, err)
				return
			}
			u := *req.URL
			u.Path, u.RawPath = "/"+path, ""
			req = req.Clone(req.Context())
			req.URL = &u
		} else if req.URL.Path+"/" == clustersPrefix {
			apierror.Write(w, req, errNoWorkspace)
			return
		}
		next.ServeHTTP(w, req.WithContext(logicalcluster.WithCluster(req.Context(), cluster)))
	})
}

// Bounds of what anybody may ask for without authentication.
const (
	publicInFlight = 100
	publicTimeout  = 30 * time.Second
)

// withPublic serves what needs no authentication before everything else. It stands
// outside priority and fairness, so it has bounds of its own.
func withPublic(next http.Handler, public *http.ServeMux, gc *genericapiserver.Config) http.Handler {
	bounded := http.TimeoutHandler(public, publicTimeout, "the server took too long to answer")
	bounded = genericfilters.WithMaxInFlightLimit(bounded, publicInFlight, publicInFlight, gc.LongRunningFunc)
	bounded = genericfilters.WithHTTPLogging(bounded)
	bounded = genericapifilters.WithRequestInfo(bounded, gc.RequestInfoResolver)
	bounded = genericfilters.WithPanicRecovery(bounded, gc.RequestInfoResolver)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, pattern := public.Handler(req); pattern != "" {
			bounded.ServeHTTP(w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// checkPath refuses what could make two readers of a path see different things: escaped
// slashes, empty and dot segments, a second cluster.
func checkPath(u *url.URL, path string) error {
	if strings.Contains(strings.ToLower(u.RawPath), "%2f") {
		return apierrors.NewBadRequest("the request path must not contain escaped slashes")
	}
	if strings.HasPrefix("/"+path+"/", clustersPrefix) {
		return apierrors.NewBadRequest("the request path names two workspaces")
	}
	if strings.HasPrefix("/"+path+"/", authz.ServicesPrefix) {
		// They know no workspace but those in their own paths; below one, an identity that
		// its admin impersonates would be taken for the real one.
		return notFound("virtual workspaces are served at /services/ only")
	}
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if segment == "." || segment == ".." || (segment == "" && i < len(segments)-1) {
			return apierrors.NewBadRequest("the request path must not contain empty or dot segments")
		}
	}
	return nil
}

func resolve(ctx context.Context, resolver PathResolver, name string) (logicalcluster.Name, error) {
	if name == string(logicalcluster.Wildcard) {
		return logicalcluster.Wildcard, nil
	}
	if name == string(logicalcluster.System) {
		return logicalcluster.System, nil
	}
	path, err := logicalcluster.ParsePath(name)
	if err != nil {
		// No workspace can have such a name, so this tells nothing.
		return "", notFound(err.Error())
	}
	cluster, err := resolver.Resolve(ctx, path)
	if apierrors.IsNotFound(err) {
		return authz.UnknownCluster, nil
	}
	return cluster, err
}

var errNoWorkspace = apierrors.NewBadRequest("no workspace in the request path: use /clusters/<workspace>")

// notFound is a 404 with a message of its own.
func notFound(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotFound,
		Reason:  metav1.StatusReasonNotFound,
		Message: message,
	}}
}

// longRunning is upstream's notion of a long-running request, extended to the streams
// of virtual workspaces, which are no resource requests to it.
func longRunning() request.LongRunningRequestCheck {
	native := genericfilters.BasicLongRunningRequestCheck(
		sets.NewString("watch", "proxy"),
		sets.NewString("attach", "exec", "proxy", "log", "portforward"),
	)
	return func(req *http.Request, info *request.RequestInfo) bool {
		return virtual.LongRunning(req) || native(req, info)
	}
}

// withinWorkspace stands between authorization and the API. It ends a request to a
// workspace that does not exist, which only administrators bring this far, and keeps
// from a workspace's own admins what speaks of the whole server: metrics, profiles, the
// state of priority and fairness. RBAC of a workspace cannot give that.
func withinWorkspace(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		cluster, err := logicalcluster.FromContext(req.Context())
		switch {
		case err != nil:
		case cluster == authz.UnknownCluster:
			err = notFound("there is no such workspace")
		case cluster != logicalcluster.System && !servedInWorkspace(req.URL.Path) && !isAdministrator(req.Context()):
			err = notFound("nothing is served in a workspace at " + req.URL.Path)
		}
		if err != nil {
			apierror.Write(w, req, err)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// workspacePaths are the first segments of what tenants may see of a workspace, "" being
// the index.
var workspacePaths = sets.New("", "api", "apis", "openapi", "openid", ".well-known", "version", "healthz", "livez", "readyz")

func servedInWorkspace(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return workspacePaths.Has(first)
}

func isAdministrator(ctx context.Context) bool {
	u, ok := request.UserFrom(ctx)
	return ok && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}
