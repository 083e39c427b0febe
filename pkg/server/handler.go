package server

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
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
func withCluster(next http.Handler, resolver PathResolver, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		cluster := logicalcluster.System
		if rest, ok := strings.CutPrefix(req.URL.Path, clustersPrefix); ok {
			name, path, _ := strings.Cut(rest, "/")
			if err := checkPath(req.URL, path); err != nil {
				writeError(w, req, codecs, err)
				return
			}
			var err error
			if cluster, err = resolve(req.Context(), resolver, name); err != nil {
				writeError(w, req, codecs, err)
				return
			}
			u := *req.URL
			u.Path, u.RawPath = "/"+path, ""
			req = req.Clone(req.Context())
			req.URL = &u
		} else if req.URL.Path+"/" == clustersPrefix {
			writeError(w, req, codecs, apierrors.NewBadRequest("no workspace in the request path: use /clusters/<workspace>"))
			return
		}
		next.ServeHTTP(w, req.WithContext(logicalcluster.WithCluster(req.Context(), cluster)))
	})
}

// withPublic serves what needs no authentication before everything else.
func withPublic(next http.Handler, public *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if handler, pattern := public.Handler(req); pattern != "" {
			handler.ServeHTTP(w, req)
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
	for i, segment := range strings.Split(path, "/") {
		if segment == "." || segment == ".." || (segment == "" && i == 0 && path != "") {
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
		return "", apierrors.NewBadRequest(err.Error())
	}
	cluster, err := resolver.Resolve(ctx, path)
	if apierrors.IsNotFound(err) {
		return authz.UnknownCluster, nil
	}
	return cluster, err
}

func writeError(w http.ResponseWriter, req *http.Request, codecs runtime.NegotiatedSerializer, err error) {
	responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, w, req)
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

// notFoundCluster ends a request to a workspace that does not exist, where authorization
// has let it through: only administrators get here, and may know.
func notFoundCluster(next http.Handler, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		cluster, err := logicalcluster.FromContext(req.Context())
		if err == nil && cluster == authz.UnknownCluster {
			err = apierrors.NewNotFound(schema.GroupResource{Group: "tenancy.kcp.io", Resource: "workspaces"}, "in the request path")
		}
		if err != nil {
			writeError(w, req, codecs, err)
			return
		}
		next.ServeHTTP(w, req)
	})
}
