package virtual

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/tunnel"
)

// Prefix is the path below which a Handler serves.
const Prefix = "/services/"

// Informers are the server's shared informers; pkg/reconciler/informers.Set has them.
type Informers interface {
	Unstructured(gvr schema.GroupVersionResource) *informer.Informer[*unstructured.Unstructured]
	SyncTargets() *informer.Informer[*workloadv1alpha1.SyncTarget]
}

// Config is what a Handler needs. All fields are required.
type Config struct {
	// Informers may start before or after the Handler is made. They are asked for a
	// resource when the first client wants it.
	Informers Informers
	// Authorizer decides in the logical cluster of the context that it is given.
	Authorizer authorizer.UnconditionalAuthorizer
	// API serves single logical clusters, without authentication and authorization: the
	// logical cluster, user and RequestInfo are in the request's context and the path
	// begins with /api or /apis.
	API http.Handler
	// Resolve returns the name of the workspace at a path, or of one named by its id.
	Resolve func(ctx context.Context, path logicalcluster.Path) (logicalcluster.Name, error)
	// EffectiveLocations returns the Locations that a workspace sees, each with the
	// path of its owner in annotation kcp.io/path.
	EffectiveLocations func(ctx context.Context, cluster logicalcluster.Name) ([]*schedulingv1alpha1.Location, error)
	// Tunnels receives the tunnels that syncers open.
	Tunnels *tunnel.Tunnels
	// Clock says when syncers and gateways were heard.
	Clock clock.PassiveClock
}

// Handler serves the virtual workspaces.
type Handler struct {
	config      Config
	assignments *assignments
	workspaces  map[string]*workspace
}

// NewHandler returns a handler for paths below Prefix. It belongs behind
// authentication: the user is in the request's context. Streams end when ctx ends.
func NewHandler(ctx context.Context, config Config) *Handler {
	h := &Handler{
		config:      config,
		assignments: newAssignments(config.Informers.Unstructured(clients.AssignmentsResource)),
		workspaces:  map[string]*workspace{},
	}
	for _, ws := range []*workspace{h.syncer(), h.gateway(), h.locations()} {
		ws.start(ctx, h)
		h.workspaces[ws.name] = ws
	}
	config.Informers.SyncTargets().AddHandler(h.onSyncTarget)
	return h
}
