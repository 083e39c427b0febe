package workspaces

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
)

// ErrNotFound is returned for a path or an id that names no workspace. It is an API
// error of reason NotFound.
var ErrNotFound error = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "workspace not found",
}}

const (
	// maxDepth bounds every walk of the tree, and so the length of a path.
	maxDepth = 32
	// maxLiveLookups bounds how many requests for unknown paths, which anybody can
	// send, ask the API at the same time.
	maxLiveLookups = 16
	// maxFound bounds how many workspaces that were found live, and whose event has
	// not come yet, are remembered.
	maxFound = 1024
)

// Index answers which logical cluster a path means, and where in the tree a logical
// cluster stands. It is kept from the events of the Workspaces informer; a path that is
// not in it (yet) is looked up live, one workspace at a time, and a negative answer is
// not kept. Lookups cost O(depth).
type Index struct {
	workspaces *informer.Informer[*tenancyv1alpha1.Workspace]
	get        GetWorkspace
	live       chan struct{}

	mu sync.RWMutex
	// place says where the Workspace object of a cluster stands.
	place map[logicalcluster.Name]logicalcluster.Key
	// children says how many Workspace objects stand in a cluster.
	children map[logicalcluster.Name]int
	// found holds workspaces that were found live, until their event comes.
	found map[logicalcluster.Name]foundWorkspace
}

type foundWorkspace struct {
	key logicalcluster.Key
	ws  *tenancyv1alpha1.Workspace
}

// GetWorkspace reads one Workspace object from the API.
type GetWorkspace func(ctx context.Context, parent logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error)

// Live returns a GetWorkspace over c.
func Live(c *clients.Clients) GetWorkspace {
	return func(ctx context.Context, parent logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error) {
		return c.Workspaces(parent).Get(ctx, name, metav1.GetOptions{})
	}
}

// NewIndex returns an index over an informer that the caller runs. Make it before any
// controller adds its handlers to the same informer: handlers are called in order, so
// that a controller finds in the index what it is told about.
func NewIndex(workspaces *informer.Informer[*tenancyv1alpha1.Workspace], get GetWorkspace) *Index {
	i := &Index{
		workspaces: workspaces,
		get:        get,
		live:       make(chan struct{}, maxLiveLookups),
		place:      map[logicalcluster.Name]logicalcluster.Key{},
		children:   map[logicalcluster.Name]int{},
		found:      map[logicalcluster.Name]foundWorkspace{},
	}
	workspaces.AddHandler(i.handle)
	return i
}

// HasSynced reports whether the index holds all workspaces.
func (i *Index) HasSynced() bool { return i.workspaces.HasSynced() }

// WaitForSync blocks until HasSynced or until ctx ends; it reports which.
func (i *Index) WaitForSync(ctx context.Context) bool { return i.workspaces.WaitForSync(ctx) }

func (i *Index) handle(event informer.Event[*tenancyv1alpha1.Workspace]) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.count(event)
	if event.Old != nil {
		// After a lost watch a name that was deleted and made again looks like an update.
		i.forget(logicalcluster.Name(event.Old.Spec.Cluster), event.Key)
	}
	if !event.Deleted && event.New.Spec.Cluster != "" {
		id := logicalcluster.Name(event.New.Spec.Cluster)
		i.place[id] = event.Key
		delete(i.found, id)
	}
}

func (i *Index) count(event informer.Event[*tenancyv1alpha1.Workspace]) {
	parent := event.Key.Cluster
	switch {
	case event.Added:
		i.children[parent]++
	case event.Deleted:
		i.children[parent]--
		if i.children[parent] == 0 {
			delete(i.children, parent)
		}
	}
}

func (i *Index) forget(id logicalcluster.Name, key logicalcluster.Key) {
	if i.place[id] == key {
		delete(i.place, id)
	}
	delete(i.found, id)
}

// Resolve returns the logical cluster that path names. The first segment is an id:
// root, or the cluster of a workspace that exists; the others are names of workspaces.
// A workspace that is being deleted can still be resolved. The error wraps ErrNotFound
// where there is no such workspace. The system cluster is no workspace.
func (i *Index) Resolve(ctx context.Context, path logicalcluster.Path) (logicalcluster.Name, error) {
	segments := path.Split()
	if len(segments) > maxDepth {
		return "", fmt.Errorf("workspace path %q is deeper than %d: %w", path, maxDepth, ErrNotFound)
	}
	cluster := logicalcluster.Name(segments[0])
	if !i.exists(cluster) {
		return "", fmt.Errorf("workspace %q: %w", path, ErrNotFound)
	}
	for n, name := range segments[1:] {
		child, err := i.child(ctx, cluster, name)
		if err != nil {
			return "", fmt.Errorf("workspace %q (at %q): %w", path, logicalcluster.Path(joined(segments[:n+2])), err)
		}
		cluster = child
	}
	return cluster, nil
}

func joined(segments []string) string {
	var p logicalcluster.Path
	for _, s := range segments {
		p = p.Join(s)
	}
	return p.String()
}

func (i *Index) exists(cluster logicalcluster.Name) bool {
	if cluster == logicalcluster.Root {
		return true
	}
	_, ok := i.Key(cluster)
	return ok
}

// Key returns where the Workspace object of a cluster stands; false for root and for an
// id that names no workspace.
func (i *Index) Key(cluster logicalcluster.Name) (logicalcluster.Key, bool) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if key, ok := i.place[cluster]; ok {
		return key, true
	}
	found, ok := i.found[cluster]
	return found.key, ok
}

func (i *Index) child(ctx context.Context, parent logicalcluster.Name, name string) (logicalcluster.Name, error) {
	if ws, ok := i.workspaces.Get(parent, "", name); ok && ws.Spec.Cluster != "" {
		return logicalcluster.Name(ws.Spec.Cluster), nil
	}
	select {
	case i.live <- struct{}{}:
		defer func() { <-i.live }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	ws, err := i.get(ctx, parent, name)
	switch {
	case apierrors.IsNotFound(err):
		return "", ErrNotFound
	case err != nil:
		return "", err
	case ws.Spec.Cluster == "":
		return "", ErrNotFound
	}
	id := logicalcluster.Name(ws.Spec.Cluster)
	i.remember(id, foundWorkspace{logicalcluster.Key{Cluster: parent, Name: name}, ws})
	return id, nil
}

// remember makes an id that was found live resolvable until its event comes, so that
// what is below it can be looked up.
func (i *Index) remember(id logicalcluster.Name, found foundWorkspace) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, ok := i.place[id]; ok {
		return
	}
	if len(i.found) >= maxFound {
		clear(i.found)
	}
	i.found[id] = found
}

// Workspace returns the Workspace object of a cluster; false for root, for an id that
// names none, and for one whose event has not come yet and that nobody has looked up by
// its path. The object is shared.
func (i *Index) Workspace(cluster logicalcluster.Name) (*tenancyv1alpha1.Workspace, bool) {
	key, ok := i.Key(cluster)
	if !ok {
		return nil, false
	}
	if ws, ok := i.workspaces.Get(key.Cluster, "", key.Name); ok && ws.Spec.Cluster == string(cluster) {
		return ws, true
	}
	i.mu.RLock()
	defer i.mu.RUnlock()
	found, ok := i.found[cluster]
	return found.ws, ok
}

// Deleting reports whether a cluster's workspace is being deleted.
func (i *Index) Deleting(cluster logicalcluster.Name) bool {
	ws, ok := i.Workspace(cluster)
	return ok && ws.DeletionTimestamp != nil
}

// Path returns the path of a cluster, from root; false where the id names no workspace.
func (i *Index) Path(cluster logicalcluster.Name) (logicalcluster.Path, bool) {
	var names []string
	for range maxDepth {
		if cluster == logicalcluster.Root {
			names = append(names, string(cluster))
			slices.Reverse(names)
			return logicalcluster.Path(joined(names)), true
		}
		key, ok := i.Key(cluster)
		if !ok {
			return "", false
		}
		names = append(names, key.Name)
		cluster = key.Cluster
	}
	return "", false
}

// Ancestors returns the ids from a cluster up to root, itself first; nil where the id
// names no workspace.
func (i *Index) Ancestors(cluster logicalcluster.Name) []logicalcluster.Name {
	var out []logicalcluster.Name
	for range maxDepth {
		out = append(out, cluster)
		if cluster == logicalcluster.Root {
			return out
		}
		key, ok := i.Key(cluster)
		if !ok {
			return nil
		}
		cluster = key.Cluster
	}
	return nil
}

// Descendants returns the ids of the workspaces below a cluster, and its own. The cost is
// theirs, whatever else there is.
func (i *Index) Descendants(cluster logicalcluster.Name) []logicalcluster.Name {
	out := []logicalcluster.Name{cluster}
	for n := 0; n < len(out); n++ {
		for _, ws := range i.ListChildren(out[n]) {
			if ws.Spec.Cluster != "" {
				out = append(out, logicalcluster.Name(ws.Spec.Cluster))
			}
		}
	}
	return out
}

// HasChildren reports whether there are Workspace objects in a cluster, at a cost that does
// not depend on how many.
func (i *Index) HasChildren(cluster logicalcluster.Name) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.children[cluster] > 0
}

// ListChildren returns the Workspace objects in a cluster. They are shared.
func (i *Index) ListChildren(cluster logicalcluster.Name) []*tenancyv1alpha1.Workspace {
	return i.workspaces.ListCluster(cluster)
}
