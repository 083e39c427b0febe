// Package drain answers what a drain of a SyncTarget would do, before anybody begins one:
// GET /services/drain/<cluster>/<name>, with ?force=true as if it were forced. The admin of
// physical clusters cannot look into tenants' workspaces, so the server does.
//
// Who may drain a target (verb "update" on it) may ask. The answer is a JSON list of
// workloadv1alpha1.DrainPreview and changes nothing.
package drain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/reconciler/handover"
	"github.com/13eedeaf/kcp/pkg/reconciler/placement"
	"github.com/13eedeaf/kcp/pkg/server/apierror"
	"github.com/13eedeaf/kcp/pkg/server/authz"
)

// Prefix is the path below which a Handler serves.
const Prefix = "/services/drain/"

// Handler serves previews. All fields are required.
type Handler struct {
	// Authorizer decides in the logical cluster of the context that it is given.
	Authorizer authorizer.UnconditionalAuthorizer
	// SyncTarget returns a SyncTarget as the server's informers know it.
	SyncTarget func(cluster logicalcluster.Name, name string) (*workloadv1alpha1.SyncTarget, bool)
	// Preview is handover.Controller's.
	Preview func(ctx context.Context, target string, force bool) ([]handover.Forecast, error)
	// Find returns the SyncTarget behind a target key; Path the path of a workspace.
	Find func(key string) (logicalcluster.Key, bool)
	Path func(logicalcluster.Name) (logicalcluster.Path, bool)
}

// ServeHTTP implements http.Handler. It belongs behind authentication.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	previews, err := h.serve(r)
	if err != nil {
		apierror.Write(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// A client that has gone away is no concern of ours.
	_ = json.NewEncoder(w).Encode(previews)
}

func (h *Handler) serve(r *http.Request) ([]workloadv1alpha1.DrainPreview, error) {
	below, ok := strings.CutPrefix(r.URL.Path, Prefix)
	id, name, two := strings.Cut(below, "/")
	if !ok || !two || name == "" || strings.Contains(name, "/") {
		return nil, apierrors.NewBadRequest("a preview of a drain is at " + Prefix + "<cluster>/<sync target>")
	}
	if r.Method != http.MethodGet {
		return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "drain"}, r.Method)
	}
	force := false
	if raw := r.URL.Query().Get("force"); raw != "" {
		var err error
		if force, err = strconv.ParseBool(raw); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("force is %q, must be true or false", raw))
		}
	}
	cluster := logicalcluster.Name(id)
	if err := h.authorize(r.Context(), cluster, name); err != nil {
		return nil, err
	}
	target, ok := h.SyncTarget(cluster, name)
	if !ok {
		return nil, apierrors.NewNotFound(clients.SyncTargetsResource.GroupResource(), name)
	}
	forecasts, err := h.Preview(r.Context(), workloadv1alpha1.TargetKey(cluster, target.UID), force)
	if err != nil {
		return nil, fmt.Errorf("cannot preview the drain of sync target %q: %w", name, err)
	}
	return h.previews(cluster, forecasts), nil
}

// authorize refuses in the same words whether or not there is such a target.
func (h *Handler) authorize(ctx context.Context, cluster logicalcluster.Name, name string) error {
	u, ok := request.UserFrom(ctx)
	if !ok {
		return apierrors.NewUnauthorized("a preview of a drain needs a user")
	}
	return authz.Allowed(ctx, h.Authorizer, cluster, authorizer.AttributesRecord{
		User: u, Verb: "update", Name: name,
		APIGroup: clients.SyncTargetsResource.Group, APIVersion: clients.SyncTargetsResource.Version, Resource: clients.SyncTargetsResource.Resource,
	})
}

// previews puts forecasts into the words of whoever is in charge of cluster, what stays
// first.
func (h *Handler) previews(cluster logicalcluster.Name, forecasts []handover.Forecast) []workloadv1alpha1.DrainPreview {
	out := make([]workloadv1alpha1.DrainPreview, 0, len(forecasts))
	for _, f := range forecasts {
		path, ok := h.Path(f.Namespace.Cluster)
		if !ok {
			path = f.Namespace.Cluster.Path()
		}
		p := workloadv1alpha1.DrainPreview{
			Workspace: string(path), Namespace: f.Namespace.Name, Result: f.Result,
			Message: placement.NameTargets(f.Message, cluster, h.Find),
		}
		if f.To != nil {
			p.To = &workloadv1alpha1.DrainDestination{Location: f.To.Location, Target: placement.NameTargets(f.To.Target, cluster, h.Find)}
		}
		out = append(out, p)
	}
	slices.SortStableFunc(out, func(a, b workloadv1alpha1.DrainPreview) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Namespace, b.Namespace))
	})
	return out
}

func rank(p workloadv1alpha1.DrainPreview) int {
	switch p.Result {
	case workloadv1alpha1.DrainIsBlocked, workloadv1alpha1.DrainHeld:
		return 0
	case workloadv1alpha1.DrainEnds:
		return 1
	default:
		return 2
	}
}
