package syncer

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
	"github.com/13eedeaf/kcp/pkg/syncer/transform"
)

// ledger says what was applied of the confidential resources in one namespace. They may
// only be read namespace by namespace, and a watch for each takes more memory than all
// that it would watch; so what was applied is noted, and the sweep compares.
type ledger map[resources.Resource]map[string]entry

// entry is one copy.
type entry struct {
	uid types.UID
	// version is the resourceVersion in which the copy was as it should be; empty when
	// it has to be looked at.
	version string
	// hash is what stands in the copy's annotation.
	hash string
}

// pageSize bounds what a list holds at a time.
const pageSize = 100

// copiesIn lists what is in a namespace and notes in which version it is as it should be.
func (s *session) copiesIn(ctx context.Context, key namespaceKey) (ledger, error) {
	namespace, all := s.id.namespace(key), ledger{}
	for _, r := range s.down.confidential {
		all[r] = map[string]entry{}
		options := metav1.ListOptions{LabelSelector: s.down.selector, Limit: pageSize}
		for {
			page, err := s.down.namespaced(r, namespace).List(ctx, options)
			if err != nil {
				return nil, fmt.Errorf("cannot list %s in downstream namespace %q: %w", r, namespace, err)
			}
			for i := range page.Items {
				if existing := &page.Items[i]; s.isCopy(existing) {
					e := entryOf(existing)
					if !s.asWanted(objectKey{key, r, existing.GetName()}, existing) {
						e.version = ""
					}
					all[r][existing.GetName()] = e
				}
			}
			if options.Continue = page.GetContinue(); options.Continue == "" {
				break
			}
		}
	}
	return all, nil
}

// asWanted reports whether a copy is what its source asks for.
func (s *session) asWanted(key objectKey, existing *unstructured.Unstructured) bool {
	source, ok := s.sources[key.Resource].Get(key.Cluster, key.Namespace, key.Name)
	if !ok {
		return false
	}
	desired, err := transform.Down(key.Resource, source, existing.GetNamespace(), s.id.instanceID)
	if err != nil || hashOf(desired) != hashOf(existing) {
		return false
	}
	_, drifted, err := transform.Drift(desired, existing)
	return err == nil && !drifted
}

func hashOf(obj *unstructured.Unstructured) string {
	return obj.GetAnnotations()[names.HashAnnotation]
}

func entryOf(obj *unstructured.Unstructured) entry {
	return entry{uid: obj.GetUID(), version: obj.GetResourceVersion(), hash: hashOf(obj)}
}

// applied returns what is noted of one copy in a namespace that is open.
func (d *downstream) applied(r resources.Resource, namespace, name string) (entry, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tenants[namespace]
	if !ok {
		return entry{}, false
	}
	e, ok := t.applied[r][name]
	return e, ok
}

// note notes that a copy is as it should be, doubt that it has to be looked at, forget
// that there is none.
func (d *downstream) note(r resources.Resource, obj *unstructured.Unstructured) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t, ok := d.tenants[obj.GetNamespace()]; ok && t.applied[r] != nil {
		t.applied[r][obj.GetName()] = entryOf(obj)
	}
}

func (d *downstream) doubt(r resources.Resource, namespace, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t, ok := d.tenants[namespace]; ok {
		if e, ok := t.applied[r][name]; ok {
			e.version = ""
			t.applied[r][name] = e
		}
	}
}

func (d *downstream) forget(r resources.Resource, namespace, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t, ok := d.tenants[namespace]; ok {
		delete(t.applied[r], name)
	}
}

// copiesNoted returns the names of the copies that are noted in a namespace.
func (d *downstream) copiesNoted(r resources.Resource, namespace string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tenants[namespace]
	if !ok {
		return nil
	}
	out := make([]string, 0, len(t.applied[r]))
	for name := range t.applied[r] {
		out = append(out, name)
	}
	return out
}

// compare brings the ledger together with what a list shows now, and returns the names of
// copies to look at: those that came, changed or went by somebody else's hand. A list
// that is older than what was applied meanwhile costs a look, and nothing else.
func (d *downstream) compare(r resources.Resource, namespace string, listed map[string]entry) (namespaceKey, []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tenants[namespace]
	if !ok || t.applied[r] == nil {
		return namespaceKey{}, nil
	}
	var differ []string
	for name, e := range t.applied[r] {
		if l, ok := listed[name]; ok && l.uid == e.uid && l.version == e.version {
			continue
		}
		e.version = ""
		t.applied[r][name] = e
		differ = append(differ, name)
	}
	for name, l := range listed {
		if _, ok := t.applied[r][name]; !ok {
			l.version = ""
			t.applied[r][name] = l
			differ = append(differ, name)
		}
	}
	return t.key, differ
}
