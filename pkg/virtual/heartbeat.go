package virtual

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/13eedeaf/kcp/pkg/version"
)

// heartbeatFields is what a syncer says of its SyncTarget's status; the rest is the
// server's.
var heartbeatFields = sets.New("lastSyncerHeartbeatTime", "syncerVersion", "kubernetesVersion", "capacity", "allocatable")

// heartbeat forwards a merge patch of the SyncTarget's status.
func (h *Handler) heartbeat(c *call, path string) error {
	body, err := readBody(c)
	if err != nil {
		return err
	}
	if body.contentType != mergeType {
		return unsupportedMediaType(body.contentType)
	}
	status, ok := body.object["status"].(map[string]any)
	for field := range body.object {
		if !sets.New("apiVersion", "kind", "metadata", "status").Has(field) {
			ok = false
		}
	}
	for field := range status {
		if !heartbeatFields.Has(field) {
			ok = false
		}
	}
	if !ok {
		return forbidden(syncTargetsResource.gvr.GroupResource(), c.scope.name, fmt.Sprintf("a syncer patches these fields of the status only: %v", sets.List(heartbeatFields)))
	}
	// Refused ones do not come here, so it reads.
	syncer, err := version.PeerOf(c.r.Header)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	status["syncProtocol"] = syncer.Protocol
	// Others compare it with this server's clock; what the syncer's says is no help.
	status["lastSyncerHeartbeatTime"] = h.config.Clock.Now().UTC().Format(time.RFC3339)
	b, err := json.Marshal(map[string]any{
		// Another SyncTarget that has got the name is not this syncer's.
		"metadata": map[string]any{"uid": c.scope.uid},
		"status":   status,
	})
	if err != nil {
		return fmt.Errorf("cannot encode the heartbeat: %w", err)
	}
	return h.forward(c, c.scope.cluster, http.MethodPatch, path, mergeType, b)
}

func fromUnstructured(obj *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, into); err != nil {
		return fmt.Errorf("cannot read %s %q: %w", obj.GetKind(), obj.GetName(), err)
	}
	return nil
}

// stampRenewal sets when a gateway has renewed its lease, wherever it says that it has.
func stampRenewal(body map[string]any, now time.Time) {
	if spec, ok := body["spec"].(map[string]any); ok && spec["renewTime"] != nil {
		spec["renewTime"] = now.UTC().Format(metav1.RFC3339Micro)
	}
}
