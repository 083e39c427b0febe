package syncer

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
	"github.com/13eedeaf/kcp/pkg/syncer/transform"
)

// reconcileReplicaSet shows a Deployment's replica set in the workspace, for kubectl
// rollout history and undo. Neither side's state is waited for elsewhere: a server or a
// manifest that is older than this leaves the replica sets out, and nothing else.
func (s *session) reconcileReplicaSet(ctx context.Context, key mirrorKey) (reconciler.Result, error) {
	mirrors := s.mirrors[resources.ReplicaSets]
	if !s.down.replicaSets.hasSynced() || !mirrors.HasSynced() {
		return reconciler.Result{}, nil
	}
	mirror, exists := mirrors.Get(key.Cluster, key.Namespace, names.Mirror(s.id.targetKey, key.Name))
	desired := s.desiredReplicaSet(key)
	switch {
	case desired == nil && exists:
		return reconciler.Result{}, s.deleteUp(ctx, key.Resource, key.namespaceKey, mirror)
	case desired == nil:
		return reconciler.Result{}, nil
	}
	client, err := s.up.namespaced(key.Resource.GroupVersionResource, key.Cluster, key.Namespace)
	if err != nil {
		return reconciler.Result{}, err
	}
	written, err := writeReplicaSet(ctx, client, desired, mirror)
	if err != nil {
		return reconciler.Result{}, fmt.Errorf("cannot write mirror %s: %w", key, err)
	}
	if written == nil || reflect.DeepEqual(desired.Object["status"], written.Object["status"]) {
		return reconciler.Result{}, nil
	}
	return reconciler.Result{}, s.writeReplicaSetStatus(ctx, client, key, desired, written)
}

// watchReplicaSets looks at all replica sets once both sides are known.
func (s *session) watchReplicaSets(ctx context.Context) {
	if !s.down.replicaSets.waitForSync(ctx) || !s.mirrors[resources.ReplicaSets].WaitForSync(ctx) {
		return
	}
	for o := range s.down.replicaSets.all() {
		s.enqueueMirror(resources.ReplicaSets, o)
	}
	for _, o := range s.mirrors[resources.ReplicaSets].List() {
		if key, ok := s.mirrored(resources.ReplicaSets, o); ok {
			s.mirrorQueue.Enqueue(key)
		}
	}
}

// desiredReplicaSet returns the mirror to be; nil when there is nothing to show: the
// replica set is gone, or belongs to no Deployment of the workspace.
func (s *session) desiredReplicaSet(key mirrorKey) *unstructured.Unstructured {
	live := s.live(key)
	if live == nil || live.GetDeletionTimestamp() != nil {
		return nil
	}
	owner, ok := s.ownerOf(key.namespaceKey, live)
	if !ok {
		return nil
	}
	return transform.MirrorReplicaSet(live, key.Namespace, s.id.targetKey, owner)
}

// writeReplicaSet brings all but the status to what desired says, and returns the
// outcome; nil when the stream has yet to show what is there.
func writeReplicaSet(ctx context.Context, client dynamic.ResourceInterface, desired, mirror *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if mirror == nil {
		created, err := client.Create(ctx, desired, metav1.CreateOptions{FieldManager: names.FieldManager})
		if apierrors.IsAlreadyExists(err) {
			return nil, nil
		}
		return created, err
	}
	if transform.SameReplicaSet(desired, mirror) {
		return mirror, nil
	}
	updated, err := client.Update(ctx, desired, metav1.UpdateOptions{FieldManager: names.FieldManager})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return updated, err
}

// writeReplicaSetStatus writes the status; there is no other writer.
func (s *session) writeReplicaSetStatus(ctx context.Context, client dynamic.ResourceInterface, key mirrorKey, desired, written *unstructured.Unstructured) error {
	out := written.DeepCopy()
	out.SetResourceVersion("")
	out.Object["status"] = desired.Object["status"]
	_, err := client.UpdateStatus(ctx, out, metav1.UpdateOptions{FieldManager: names.FieldManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot update the status of mirror %s: %w", key, err)
	}
	return nil
}
