package virtual

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/server/authz"
)

// locations is the virtual workspace of the Locations that a workspace sees, its own
// and inherited ones, with base /services/locations/clusters/<path or id>. Who has
// access to the workspace may read them, without access to the ones that own them.
func (h *Handler) locations() *workspace {
	return &workspace{name: "locations", enter: h.enterLocations, resources: []*resource{{
		gvr: clients.LocationsResource, kind: "Location",
		compute: func(ctx context.Context, cluster logicalcluster.Name) ([]runtime.Object, error) {
			effective, err := h.config.EffectiveLocations(ctx, cluster)
			if err != nil {
				return nil, fmt.Errorf("cannot gather the locations of cluster %q: %w", cluster, err)
			}
			out := make([]runtime.Object, 0, len(effective))
			for _, location := range effective {
				location = location.DeepCopy()
				location.SetGroupVersionKind(clients.LocationsResource.GroupVersion().WithKind("Location"))
				location.ManagedFields = nil
				out = append(out, location)
			}
			return out, nil
		},
	}}}
}

// enterLocations resolves the workspace and returns a path with its id.
func (h *Handler) enterLocations(ctx context.Context, u user.Info, path string) (*scope, string, error) {
	below, ok := strings.CutPrefix(path, "/clusters/")
	name, rest, _ := strings.Cut(below, "/")
	refused := apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf("user %q has no access to workspace %q", u.GetName(), name))
	workspacePath, err := logicalcluster.ParsePath(name)
	if !ok || err != nil {
		return nil, "", notServed(strings.TrimSuffix(Prefix, "/") + "/locations" + path)
	}
	// A workspace that does not exist and one without access look the same.
	cluster, err := h.config.Resolve(ctx, workspacePath)
	if err != nil {
		return nil, "", refused
	}
	err = authz.Allowed(ctx, h.config.Authorizer, cluster, authorizer.AttributesRecord{User: u, Verb: authz.AccessVerb, Path: "/"})
	if apierrors.IsForbidden(err) {
		return nil, "", refused
	}
	if err != nil {
		return nil, "", err
	}
	return &scope{}, cluster.Path().RequestPath() + "/" + rest, nil
}
