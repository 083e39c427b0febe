package syncer

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
	"github.com/13eedeaf/kcp/pkg/syncer/transform"
)

// enqueueAll looks at everything that either side knows.
func (s *session) enqueueAll() {
	for _, a := range s.assignments.List() {
		s.namespaceQueue.Enqueue(namespaceOf(logicalcluster.KeyOf(a)))
	}
	for _, ns := range s.down.namespaces.list() {
		if key, ok := s.owner(ns); ok {
			s.namespaceQueue.Enqueue(key)
		}
	}
	for _, r := range s.synced {
		s.enqueueResource(r)
	}
	for _, report := range s.reports.List() {
		if key, ok := s.reported(report); ok {
			s.objectQueue.Enqueue(key)
		}
	}
	for r, c := range s.shown() {
		for _, o := range c.list() {
			s.enqueueMirror(r, o)
		}
		for _, o := range s.mirrors[r].List() {
			if key, ok := s.mirrored(r, o); ok {
				s.mirrorQueue.Enqueue(key)
			}
		}
	}
}

// shown returns the caches of what is mirrored.
func (s *session) shown() map[resources.Resource]*objectCache {
	return map[resources.Resource]*objectCache{
		resources.Pods:           s.down.pods,
		resources.EndpointSlices: s.down.slices,
		resources.ReplicaSets:    s.down.replicaSets,
	}
}

// enqueueResource looks at all objects of one resource.
func (s *session) enqueueResource(r resources.Resource) {
	s.enqueueSources(r, s.sources[r].List())
	for _, ns := range s.down.namespaces.list() {
		if c, ok := s.down.copiesOf(r, ns.GetName()); ok {
			for _, o := range c.listNamespace(ns.GetName()) {
				s.enqueueCopy(r, o)
			}
		}
	}
}

func (s *session) enqueueSources(r resources.Resource, sources []*unstructured.Unstructured) {
	for _, o := range sources {
		if !transform.Skipped(r, o) {
			key := logicalcluster.KeyOf(o)
			s.objectQueue.Enqueue(objectKey{namespaceOf(key), r, key.Name})
		}
	}
}

// enqueueNamespace looks at all that belongs to one namespace, once it can be worked on.
func (s *session) enqueueNamespace(key namespaceKey) {
	name := s.id.namespace(key)
	for _, r := range s.synced {
		s.enqueueSources(r, s.sources[r].ListNamespace(key.Cluster, key.Namespace))
		if c, ok := s.down.copiesOf(r, name); ok {
			for _, o := range c.listNamespace(name) {
				s.enqueueCopy(r, o)
			}
		}
	}
	for _, report := range s.reports.ListNamespace(key.Cluster, key.Namespace) {
		if object, ok := s.reported(report); ok {
			s.objectQueue.Enqueue(object)
		}
	}
	for r, c := range s.shown() {
		for _, o := range c.listNamespace(name) {
			s.enqueueMirror(r, o)
		}
	}
}
