package virtual

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/server/admission"
	"github.com/13eedeaf/kcp/pkg/server/authz"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
)

var (
	syncTargetsResource = &resource{gvr: clients.SyncTargetsResource, kind: "SyncTarget"}
	assignmentsResource = &resource{gvr: clients.AssignmentsResource, kind: "Assignment", namespaced: true}
)

// syncer is the virtual workspace of one SyncTarget, with base
// /services/syncer/<cluster>/<name>/<uid>: the objects of the namespaces assigned to
// it, its Assignments, and what it has written itself. It writes SyncReports, mirrored
// pods, replica sets and endpoint slices, and events; takes its finalizer off its
// Assignments; reports its heartbeat; and opens the tunnel to its pods.
func (h *Handler) syncer() *workspace {
	create, all := sets.New("create", "update", "patch"), sets.New("create", "update", "patch", "delete")
	status := sets.New("status")
	mirror := &writeRule{verbs: all, needsGrant: true, check: ownMirror}
	table := []*resource{
		{
			gvr: clients.AssignmentsResource, kind: "Assignment", namespaced: true,
			audience: func(obj *unstructured.Unstructured) audience { return onlyTarget(targetOfAssignment(obj)) },
			write:    &writeRule{verbs: sets.New("update", "patch"), noApply: true, check: finalizerOnly, patch: removeFinalizer},
		},
		{
			gvr: clients.SyncReportsResource, kind: "SyncReport", namespaced: true,
			audience: func(obj *unstructured.Unstructured) audience { return onlyTarget(targetOfAssignment(obj)) },
			write:    &writeRule{verbs: all, needsGrant: true, check: ownReport},
		},
		{
			gvr: resources.EndpointSlices.GroupVersionResource, kind: resources.EndpointSlices.Kind, namespaced: true,
			audience: mirrorAudience,
			write:    mirror,
		},
		{
			gvr: resources.ReplicaSets.GroupVersionResource, kind: resources.ReplicaSets.Kind, namespaced: true,
			audience: mirrorAudience,
			write:    &writeRule{verbs: all, subresources: status, needsGrant: true, check: ownMirror},
		},
		{
			gvr: schema.GroupVersionResource{Version: "v1", Resource: "events"}, kind: "Event", namespaced: true,
			write: &writeRule{verbs: create, needsGrant: true},
		},
		{
			gvr: schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}, kind: "Event", namespaced: true,
			write: &writeRule{verbs: create, needsGrant: true},
		},
	}
	// Without limits there is nothing that the table of resources could lack.
	synced, _ := resources.Synced(nil)
	for _, r := range synced {
		res := &resource{gvr: r.GroupVersionResource, kind: r.Kind, namespaced: true, assigned: true, audience: syncedAudience(r.GroupResource())}
		if r.GroupVersionResource == resources.Pods.GroupVersionResource {
			res.write = &writeRule{verbs: all, subresources: status, needsGrant: true, check: ownMirror}
		}
		table = append(table, res)
	}
	return &workspace{name: "syncer", enter: h.enterSyncer, resources: table, own: h.serveSyncTarget}
}

// mirrorAudience shows a mirrored object to the target that mirrors it.
func mirrorAudience(obj *unstructured.Unstructured) audience {
	return onlyTarget(obj.GetLabels()[workloadv1alpha1.TargetLabelKey])
}

// syncedAudience shows objects to the targets of their namespace, except what each
// cluster makes for itself. Mirrored pods come from a target and go to no other.
func syncedAudience(gr schema.GroupResource) func(*unstructured.Unstructured) audience {
	switch gr {
	case schema.GroupResource{Resource: "pods"}:
		return func(obj *unstructured.Unstructured) audience {
			if _, mirrored := obj.GetLabels()[workloadv1alpha1.TargetLabelKey]; mirrored {
				return mirrorAudience(obj)
			}
			return assignees(obj)
		}
	case schema.GroupResource{Resource: "secrets"}:
		return unless(func(obj *unstructured.Unstructured) bool {
			return secretType(obj) == "kubernetes.io/service-account-token"
		})
	case schema.GroupResource{Resource: "configmaps"}:
		return unless(func(obj *unstructured.Unstructured) bool { return obj.GetName() == "kube-root-ca.crt" })
	case schema.GroupResource{Resource: "serviceaccounts"}:
		return unless(func(obj *unstructured.Unstructured) bool { return obj.GetName() == "default" })
	default:
		return assignees
	}
}

// unless hides what hidden selects and shows the rest to the targets of the namespace.
func unless(hidden func(*unstructured.Unstructured) bool) func(*unstructured.Unstructured) audience {
	return func(obj *unstructured.Unstructured) audience {
		if hidden(obj) {
			return nobody
		}
		return assignees(obj)
	}
}

func secretType(obj *unstructured.Unstructured) string {
	t, _, _ := unstructured.NestedString(obj.Object, "type")
	return t
}

// enterSyncer takes /<cluster>/<name>/<uid>/<rest> apart. Whoever may not sync a target
// is not told whether it exists.
func (h *Handler) enterSyncer(ctx context.Context, u user.Info, path string) (*scope, string, error) {
	parts := strings.SplitN(path, "/", 5)
	if len(parts) < 4 || parts[2] == "" || parts[3] == "" {
		return nil, "", notServed(strings.TrimSuffix(Prefix, "/") + "/syncer" + path)
	}
	cluster, name, uid := logicalcluster.Name(parts[1]), parts[2], parts[3]
	rest := "/"
	if len(parts) == 5 {
		rest += parts[4]
	}
	if err := authz.Allowed(ctx, h.config.Authorizer, cluster, authorizer.AttributesRecord{
		User:       u,
		Verb:       "sync",
		APIGroup:   clients.SyncTargetsResource.Group,
		APIVersion: clients.SyncTargetsResource.Version,
		Resource:   clients.SyncTargetsResource.Resource,
		Name:       name,
	}); err != nil {
		return nil, "", err
	}
	wanted, err := h.syncTarget(ctx, cluster, name, uid)
	if err != nil {
		return nil, "", err
	}
	key := workloadv1alpha1.TargetKey(cluster, wanted.uid)
	return &scope{
		target:    key,
		cluster:   cluster,
		name:      name,
		uid:       uid,
		mayAssign: mayAssign(wanted.resources),
		writer:    admission.Syncer(key),
	}, rest, nil
}

// syncTargetInfo is what a request needs of a SyncTarget.
type syncTargetInfo struct {
	uid       types.UID
	resources []workloadv1alpha1.GroupResource
}

// syncTarget returns the SyncTarget with name and uid, from storage where the informer
// does not have it yet: a syncer that is told Gone gives up.
func (h *Handler) syncTarget(ctx context.Context, cluster logicalcluster.Name, name, uid string) (syncTargetInfo, error) {
	if st, ok := h.config.Informers.SyncTargets().Get(cluster, "", name); ok && string(st.UID) == uid {
		return syncTargetInfo{uid: st.UID, resources: st.Spec.Resources}, nil
	}
	//nolint:staticcheck // Gone, not Expired: a syncer gives up on it, and does not list anew.
	gone := apierrors.NewGone(fmt.Sprintf("SyncTarget %q with uid %q does not exist in cluster %q (any more): register this physical cluster again", name, uid, cluster))
	obj, err := h.fetch(ctx, syncTargetsResource, logicalcluster.Key{Cluster: cluster, Name: name})
	if apierrors.IsNotFound(err) {
		return syncTargetInfo{}, gone
	}
	if err != nil {
		return syncTargetInfo{}, err
	}
	if string(obj.GetUID()) != uid {
		return syncTargetInfo{}, gone
	}
	st := &workloadv1alpha1.SyncTarget{}
	if err := fromUnstructured(obj, st); err != nil {
		return syncTargetInfo{}, err
	}
	return syncTargetInfo{uid: st.UID, resources: st.Spec.Resources}, nil
}

// mayAssign returns what spec.resources of a SyncTarget allows.
func mayAssign(allowed []workloadv1alpha1.GroupResource) func(schema.GroupResource) bool {
	if len(allowed) == 0 {
		return nil
	}
	return func(gr schema.GroupResource) bool {
		return slices.Contains(allowed, workloadv1alpha1.GroupResource{Group: gr.Group, Resource: gr.Resource})
	}
}

// onSyncTarget ends the streams of a target that is gone, or that may now see other
// resources.
func (h *Handler) onSyncTarget(e informer.Event[*workloadv1alpha1.SyncTarget]) {
	if e.Added || !e.Deleted && e.Old.UID == e.New.UID && slices.Equal(e.Old.Spec.Resources, e.New.Spec.Resources) {
		return
	}
	key := workloadv1alpha1.TargetKey(e.Key.Cluster, e.Old.UID)
	if e.Deleted || e.Old.UID != e.New.UID {
		// Its goodbye may wait for a peer that is not there, and nothing waits here.
		go h.config.Tunnels.Close(key)
	}
	for _, hub := range h.workspaces["syncer"].readyHubs() {
		hub.closeTarget(key)
	}
}

// serveSyncTarget serves the SyncTarget itself: GET, the heartbeat, and the tunnel; and
// nothing to a syncer of a version that does not fit.
func (h *Handler) serveSyncTarget(c *call) (bool, error) {
	if err := h.checkVersion(c); err != nil {
		return true, err
	}
	if c.path == tunnelPath {
		return true, h.tunnel(c)
	}
	path := apiPath(syncTargetsResource, "", c.scope.name, "")
	key := logicalcluster.Key{Cluster: c.scope.cluster, Name: c.scope.name}
	switch {
	case c.path == path && c.r.Method == http.MethodGet:
		obj, err := h.fetch(c.r.Context(), syncTargetsResource, key)
		if err != nil {
			return true, err
		}
		b, err := encode(syncTargetsResource, obj)
		if err != nil {
			return true, err
		}
		writeJSON(c.w, b)
		return true, nil
	case c.path == path+"/status" && c.r.Method == http.MethodPatch:
		return true, h.heartbeat(c, path+"/status")
	default:
		return false, nil
	}
}
