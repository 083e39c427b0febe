package virtual

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/version"
)

// heard is how long after its heartbeat a syncer is taken to be at work, so that the word
// of another one that is refused, such as a replica that is just being replaced, does not
// stand in the SyncTarget.
const heard = 30 * time.Second

// checkVersion tells the syncer what this server is, and refuses one that it cannot work
// with. What it has told is noted on the SyncTarget, for those who wonder why the target
// is silent.
func (h *Handler) checkVersion(c *call) error {
	version.Self().Tell(c.w.Header())
	syncer, err := version.PeerOf(c.r.Header)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	message := version.RefuseSyncer(syncer, c.scope.name)
	if message == "" {
		return nil
	}
	if err := h.noteSkew(c, syncer); err != nil {
		klog.FromContext(c.r.Context()).Error(err, "Cannot note on a SyncTarget that its syncer is refused", "cluster", c.scope.cluster, "object", c.scope.name)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusBadRequest,
		Reason:  metav1.StatusReasonBadRequest,
		Message: message,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: version.SkewCause, Message: message}}},
	}}
}

// noteSkew writes what a refused syncer has told of itself.
func (h *Handler) noteSkew(c *call, syncer version.Peer) error {
	st, ok := h.config.Informers.SyncTargets().Get(c.scope.cluster, "", c.scope.name)
	if !ok || string(st.UID) != c.scope.uid {
		return nil
	}
	if s := st.Status; s.SyncProtocol != nil {
		if int(*s.SyncProtocol) == syncer.Protocol && s.SyncerVersion == syncer.Build {
			return nil
		}
		working := version.RefuseSyncer(version.Peer{Build: s.SyncerVersion, Protocol: int(*s.SyncProtocol)}, st.Name) == ""
		if working && s.LastHeartbeatTime != nil && time.Since(s.LastHeartbeatTime.Time) < heard {
			return nil
		}
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": c.scope.uid},
		"status":   map[string]any{"syncerVersion": syncer.Build, "syncProtocol": syncer.Protocol},
	})
	if err != nil {
		return fmt.Errorf("cannot encode the status: %w", err)
	}
	return h.patch(c.r.Context(), syncTargetsResource, logicalcluster.Key{Cluster: c.scope.cluster, Name: c.scope.name}, "status", body)
}
