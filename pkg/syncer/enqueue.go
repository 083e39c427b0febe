package syncer

import (
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
	"github.com/13eedeaf/kcp/pkg/syncer/transform"
)

// enqueueAll looks at everything that either side knows.
func (s *session) enqueueAll() {
	for _, a := range s.assignments.List() {
		s.namespaceQueue.Enqueue(namespaceOf(logicalcluster.KeyOf(a)))
	}
	for ns := range s.down.namespaces.all() {
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
		for o := range c.all() {
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
	for _, key := range s.sources[r].Keys() {
		s.objectQueue.Enqueue(objectKey{namespaceOf(key), r, key.Name})
	}
	if !r.Confidential {
		for o := range s.down.copies[r].all() {
			s.enqueueCopy(r, o)
		}
		return
	}
	for _, namespace := range s.down.opened() {
		if key, ok := s.tenantOf(namespace); ok {
			s.enqueueNoted(key, r, namespace)
		}
	}
}

// enqueueNoted looks at the copies of one confidential resource in one namespace.
func (s *session) enqueueNoted(key namespaceKey, r resources.Resource, namespace string) {
	for _, name := range s.down.copiesNoted(r, namespace) {
		s.objectQueue.Enqueue(objectKey{key, r, name})
	}
}

// enqueueNamespace looks at all that belongs to one namespace, once it can be worked on.
func (s *session) enqueueNamespace(key namespaceKey) {
	name := s.id.namespace(key)
	for _, r := range s.synced {
		for _, o := range s.sources[r].ListNamespace(key.Cluster, key.Namespace) {
			if !transform.Skipped(r, o) {
				s.objectQueue.Enqueue(objectKey{key, r, o.GetName()})
			}
		}
		if r.Confidential {
			s.enqueueNoted(key, r, name)
			continue
		}
		for o := range s.down.copies[r].inNamespace(name) {
			s.enqueueCopy(r, o)
		}
	}
	for _, report := range s.reports.ListNamespace(key.Cluster, key.Namespace) {
		if object, ok := s.reported(report); ok {
			s.objectQueue.Enqueue(object)
		}
	}
	for r, c := range s.shown() {
		for o := range c.inNamespace(name) {
			s.enqueueMirror(r, o)
		}
	}
}
