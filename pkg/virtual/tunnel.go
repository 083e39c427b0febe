package virtual

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// tunnelPath is, below the base of a SyncTarget's virtual workspace, where its syncer
// opens the tunnel through which the server reaches pods.
const tunnelPath = "/tunnel"

// isTunnel reports whether r asks for a tunnel, which lasts as long as a stream: its path
// is the base of a SyncTarget, /<cluster>/<name>/<uid>, and tunnelPath.
func isTunnel(r *http.Request) bool {
	below, ok := strings.CutPrefix(r.URL.Path, Prefix+"syncer/")
	base, asked := strings.CutSuffix(below, tunnelPath)
	return ok && asked && strings.Count(base, "/") == 2
}

// tunnel makes the request's connection the tunnel of the caller's SyncTarget. It lasts
// until the server or the SyncTarget is gone, or the caller may no longer sync it.
func (h *Handler) tunnel(c *call) error {
	if c.r.Method != http.MethodGet {
		return methodNotSupported(syncTargetsResource, c.r.Method)
	}
	ctx := context.WithoutCancel(c.r.Context())
	base := fmt.Sprintf("/%s/%s/%s", c.scope.cluster, c.scope.name, c.scope.uid)
	allowed := func() bool {
		_, _, err := h.enterSyncer(ctx, c.user, base)
		return err == nil
	}
	if err := h.config.Tunnels.Upgrade(c.ctx, c.w, c.r, c.scope.target, allowed); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}
