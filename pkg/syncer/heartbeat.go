package syncer

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

// heartbeatInterval is a third of the silence after which a target is not ready.
const heartbeatInterval = 10 * time.Second

// heart tells the control plane that the syncer lives and can reach its cluster.
type heart struct {
	id        identity
	up        *upstream
	discovery discovery.ServerVersionInterfaceWithContext
	nodes     *objectCache
	version   string
}

// run beats until ctx ends. changed is called with the SyncTarget after each beat; retired
// when the server says that there is no such SyncTarget any more, or that this syncer is of
// a version that does not fit.
func (h *heart) run(ctx context.Context, changed func(*workloadv1alpha1.SyncTarget), retired func()) {
	logger := klog.FromContext(ctx)
	ticker := time.NewTicker(heartbeatInterval)
	defer ticker.Stop()
	for {
		target, err := h.beat(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case isRetired(err):
			logger.Error(err, "The sync target does not exist any more")
			retired()
		case skewOf(err) != nil:
			logger.Error(err, "The control plane does not work with this version")
			retired()
		case err != nil:
			logger.Error(err, "Cannot send a heartbeat, everything keeps running")
		default:
			changed(target)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// beat sends one heartbeat. A cluster that does not answer gets none: a syncer that can
// do nothing for its cluster is no sign of life of it.
func (h *heart) beat(ctx context.Context) (*workloadv1alpha1.SyncTarget, error) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	version, err := h.discovery.ServerVersionWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the physical cluster's version: %w", err)
	}
	now := metav1.Now()
	status := map[string]any{
		"lastSyncerHeartbeatTime": now,
		"syncerVersion":           h.version,
		"kubernetesVersion":       version.GitVersion,
	}
	if h.nodes.hasSynced() {
		status["capacity"] = h.sum("capacity")
		status["allocatable"] = h.sum("allocatable")
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return nil, fmt.Errorf("cannot encode a heartbeat: %w", err)
	}
	client, err := h.up.syncTargets()
	if err != nil {
		return nil, err
	}
	obj, err := client.Patch(ctx, h.id.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: names.FieldManager}, "status")
	if err != nil {
		return nil, fmt.Errorf("cannot update sync target %q: %w", h.id.name, err)
	}
	return decodeSyncTarget(obj)
}

// sum adds a resource list of all nodes.
func (h *heart) sum(field string) corev1.ResourceList {
	total := corev1.ResourceList{}
	for node := range h.nodes.all() {
		quantities, _, _ := unstructured.NestedStringMap(node.Object, "status", field)
		for name, value := range quantities {
			q, err := resource.ParseQuantity(value)
			if err != nil {
				continue
			}
			sum := total[corev1.ResourceName(name)]
			sum.Add(q)
			total[corev1.ResourceName(name)] = sum
		}
	}
	return total
}

func decodeSyncTarget(obj *unstructured.Unstructured) (*workloadv1alpha1.SyncTarget, error) {
	target := &workloadv1alpha1.SyncTarget{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, target); err != nil {
		return nil, fmt.Errorf("cannot decode sync target %q: %w", obj.GetName(), err)
	}
	return target, nil
}
