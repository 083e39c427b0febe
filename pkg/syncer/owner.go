package syncer

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
)

// ownerOf returns the reference to what stands in the workspace for the controller of an
// object downstream: the mirror of a replica set, or the object that the controller is
// the copy of. False when there is none, or none yet.
func (s *session) ownerOf(key namespaceKey, obj *unstructured.Unstructured) (metav1.OwnerReference, bool) {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil {
		return metav1.OwnerReference{}, false
	}
	owner, ok := s.inWorkspace(key, schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind), ref.Name)
	if !ok {
		return metav1.OwnerReference{}, false
	}
	return metav1.OwnerReference{
		APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(),
		Controller: ptr.To(true),
	}, true
}

// inWorkspace returns the object that stands in the workspace for one downstream: what
// it is the copy of, or its mirror.
func (s *session) inWorkspace(key namespaceKey, gvk schema.GroupVersionKind, name string) (*unstructured.Unstructured, bool) {
	for r, mirrors := range s.mirrors {
		if r.GroupVersionKind().GroupKind() == gvk.GroupKind() {
			if mirror, ok := mirrors.Get(key.Cluster, key.Namespace, names.Mirror(s.id.targetKey, name)); ok {
				if _, mirrored := s.mirrored(r, mirror); mirrored {
					return mirror, true
				}
			}
		}
	}
	for r, sources := range s.sources {
		if r.GroupVersionKind().GroupKind() == gvk.GroupKind() {
			return sources.Get(key.Cluster, key.Namespace, name)
		}
	}
	return nil, false
}

// otherObject reports whether an event is more than a change of one object.
func otherObject(e informer.Event[*unstructured.Unstructured]) bool {
	return e.Added || e.Deleted || e.Old.GetUID() != e.New.GetUID()
}

// enqueueOwned looks again at the mirrors of what a controller made: its counterpart in
// the workspace has appeared, or is gone. name is the controller's name downstream.
func (s *session) enqueueOwned(key namespaceKey, kind, name string) {
	namespace := s.id.namespace(key)
	for _, r := range []resources.Resource{resources.ReplicaSets, resources.Pods} {
		for o := range s.shown()[r].inNamespace(namespace) {
			if ref := metav1.GetControllerOfNoCopy(o); ref != nil && ref.Kind == kind && ref.Name == name {
				s.enqueueMirror(r, o)
			}
		}
	}
}
