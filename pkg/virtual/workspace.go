package virtual

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/server/admission"
	"github.com/13eedeaf/kcp/pkg/server/apierror"
)

// workspace is one virtual workspace.
type workspace struct {
	// name is the path element after Prefix.
	name string
	// enter takes the path below Prefix and name apart, authorizes, and returns the
	// caller's scope and the path below the workspace's base.
	enter func(ctx context.Context, u user.Info, path string) (*scope, string, error)
	// resources is what there is.
	resources []*resource
	// own serves paths that are the workspace's own; false if path is none. May be nil.
	own func(c *call) (served bool, err error)

	ctx     context.Context
	handler *Handler
	mu      sync.Mutex
	hubs    map[*resource]*lazyHub
}

// resource is one resource of a workspace.
type resource struct {
	gvr        schema.GroupVersionResource
	kind       string
	namespaced bool
	// audience says who sees an object. Nil for resources that are written only, or
	// computed.
	audience func(obj *unstructured.Unstructured) audience
	// assigned says that objects are shown to the targets of their namespace, and that
	// the caller's scope may exclude the resource.
	assigned bool
	// compute returns what one cluster shows, in place of a hub.
	compute func(ctx context.Context, cluster logicalcluster.Name) ([]runtime.Object, error)
	// write is what may be written; nil for nothing.
	write *writeRule
}

// scope is who calls, and what is theirs.
type scope struct {
	// target is the caller's target key; empty in workspaces that show all alike.
	target string
	// cluster, name and uid identify the SyncTarget of target.
	cluster logicalcluster.Name
	name    string
	uid     string
	// mayAssign reports whether objects of a resource may be shown because their
	// namespace is assigned. Nil stands for no limit.
	mayAssign func(schema.GroupResource) bool
	// writer marks what the caller writes.
	writer admission.Writer
}

func (s *scope) sees(a audience, granted func(grant) bool) bool {
	switch {
	case a == nobody:
		return false
	case a.everyone:
		return true
	case a.target != "":
		return a.target == s.target
	default:
		return granted(grant{target: s.target, space: a.assigned})
	}
}

// call is one request to a workspace.
type call struct {
	*workspace
	scope *scope
	user  user.Info
	w     http.ResponseWriter
	r     *http.Request
	// path is the path below the workspace's base.
	path string
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.serve(w, r); err != nil {
		apierror.Write(w, r, err)
	}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) error {
	below, ok := strings.CutPrefix(r.URL.Path, Prefix)
	if !ok {
		return notServed(r.URL.Path)
	}
	name, path, _ := strings.Cut(below, "/")
	ws, ok := h.workspaces[name]
	if !ok {
		return notServed(r.URL.Path)
	}
	u, ok := request.UserFrom(r.Context())
	if !ok {
		return apierrors.NewUnauthorized("a virtual workspace needs a user")
	}
	s, rest, err := ws.enter(r.Context(), u, "/"+path)
	if err != nil {
		return err
	}
	return ws.serve(&call{workspace: ws, scope: s, user: u, w: w, r: r, path: rest})
}

// serve answers one request within a workspace.
func (ws *workspace) serve(c *call) error {
	if ws.own != nil {
		if served, err := ws.own(c); served || err != nil {
			return err
		}
	}
	cluster, apiPath := logicalcluster.Name(""), c.path
	if below, ok := strings.CutPrefix(c.path, "/clusters/"); ok {
		name, rest, _ := strings.Cut(below, "/")
		cluster, apiPath = logicalcluster.Name(name), "/"+rest
	}
	if c.path == "/version" {
		return ws.handler.version(c)
	}
	if served, err := ws.discover(c, apiPath); served || err != nil {
		return err
	}
	if cluster != logicalcluster.Wildcard && !cluster.Valid() {
		return notServed(c.r.URL.Path)
	}
	info, err := parse(c.r, apiPath)
	if err != nil {
		return err
	}
	res := ws.find(info)
	if res == nil {
		return notServed(c.r.URL.Path)
	}
	if res.compute != nil {
		return ws.computed(c, res, info, cluster)
	}
	if cluster == logicalcluster.Wildcard {
		return ws.readAll(c, res, info)
	}
	if info.Verb == "get" {
		return ws.get(c, res, info, cluster)
	}
	return ws.write(c, res, info, cluster)
}

func (ws *workspace) find(info *request.RequestInfo) *resource {
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	for _, res := range ws.resources {
		if res.gvr == gvr {
			return res
		}
	}
	return nil
}

// lazyHub is a hub that is made when a client first wants it.
type lazyHub struct {
	once  sync.Once
	hub   *hub
	ready chan struct{}
}

func (ws *workspace) start(ctx context.Context, h *Handler) {
	ws.ctx, ws.handler, ws.hubs = ctx, h, map[*resource]*lazyHub{}
}

// hub returns the hub of a resource, once it holds everything.
func (ws *workspace) hub(ctx context.Context, res *resource) (*hub, error) {
	ws.mu.Lock()
	lazy, ok := ws.hubs[res]
	if !ok {
		lazy = &lazyHub{ready: make(chan struct{})}
		ws.hubs[res] = lazy
	}
	ws.mu.Unlock()
	lazy.once.Do(func() {
		a := ws.handler.assignments
		i := ws.handler.config.Informers.Unstructured(res.gvr)
		lazy.hub = newHub(ws.ctx, res, i, a, func(ctx context.Context, s space) (*unstructured.UnstructuredList, error) {
			return ws.handler.listNamespace(ctx, res, s)
		})
		go func() {
			if a.informer.WaitForSync(ws.ctx) && i.WaitForSync(ws.ctx) {
				lazy.hub.start()
				close(lazy.ready)
			}
		}()
	})
	select {
	case <-lazy.ready:
		return lazy.hub, nil
	case <-ctx.Done():
		return nil, apierrors.NewTimeoutError("the caches of this resource have not filled in time", 1)
	case <-ws.ctx.Done():
		return nil, apierrors.NewServiceUnavailable("the server is shutting down")
	}
}

// readyHubs returns the hubs that serve now.
func (ws *workspace) readyHubs() []*hub {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var out []*hub
	for _, lazy := range ws.hubs {
		select {
		case <-lazy.ready:
			out = append(out, lazy.hub)
		default:
		}
	}
	return out
}

func notServed(path string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotFound,
		Reason:  metav1.StatusReasonNotFound,
		Message: "nothing is served here: " + path,
	}}
}

func methodNotSupported(res *resource, verb string) error {
	return apierrors.NewMethodNotSupported(res.gvr.GroupResource(), verb)
}

// forbidden is a refusal with a reason in words.
func forbidden(gr schema.GroupResource, name, reason string) error {
	return apierrors.NewForbidden(gr, name, errors.New(reason))
}
