package placement

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/scheduling"
	"github.com/13eedeaf/kcp/pkg/steady"
)

// FleetDeps is what a Fleet reads.
type FleetDeps struct {
	SyncTargets *informer.Informer[*workloadv1alpha1.SyncTarget]
	Locations   *informer.Informer[*schedulingv1alpha1.Location]
	Assignments *informer.Informer[*schedulingv1alpha1.Assignment]
	// Path, Ancestors (itself first, root last) and Descendants (itself among them) place
	// a workspace in the tree; Resolve finds one by its path.
	Path        func(logicalcluster.Name) (logicalcluster.Path, bool)
	Ancestors   func(logicalcluster.Name) []logicalcluster.Name
	Descendants func(logicalcluster.Name) []logicalcluster.Name
	Resolve     func(context.Context, logicalcluster.Path) (logicalcluster.Name, error)
	// MayUse says whether a Location may select SyncTargets of another workspace: whoever
	// answers for it has verb use on synctargets there. Nil allows all.
	MayUse func(location *schedulingv1alpha1.Location, targets logicalcluster.Name) bool
	// Clock tells when the server has heard targets.
	Clock steady.Clock
}

// Fleet is safe for concurrent use.
type Fleet struct {
	deps    FleetDeps
	hearing hearing
	// heard has when the server heard each target, by its key.
	heard   steady.Signs[string]
	targets targetIndex

	mu sync.Mutex
	// revision grows with each relevant change: what was begun before one is not kept in
	// effective and locations.
	revision  int64
	effective map[logicalcluster.Name][]*scheduling.Location
	locations map[logicalcluster.Key]builtLocation
	// assigned has the namespaces of each target.
	assigned map[string]map[logicalcluster.Key]bool
	// assumed has namespaces that were given to a target a moment ago, whose Assignments
	// the informer may not have seen yet; it only counts for decisions.
	assumed map[string]map[logicalcluster.Key]steady.Instant

	onChange []func(Change)
}

// Change says whom a change of one SyncTarget or Location that matters to decisions
// concerns. Nobody else needs to look: any tenant can make such changes.
type Change struct {
	// Target is the key of the SyncTarget, "" where a Location has changed.
	Target string
	// Locations are those that select from the SyncTarget's workspace, or the Location.
	Locations []logicalcluster.Key
	// Clusters are the workspaces that may see them.
	Clusters []logicalcluster.Name
}

// builtLocation is the view of a Location, and the cluster whose targets it selects from.
type builtLocation struct {
	view *scheduling.Location
	from logicalcluster.Name
}

// NewFleet returns a Fleet that follows the informers given. It counts silence of
// targets from now on.
func NewFleet(deps FleetDeps) *Fleet {
	if deps.MayUse == nil {
		deps.MayUse = func(*schedulingv1alpha1.Location, logicalcluster.Name) bool { return true }
	}
	f := &Fleet{
		deps:     deps,
		hearing:  hearing{clock: deps.Clock, started: deps.Clock.Ago(0)},
		heard:    steady.Signs[string]{Clock: deps.Clock},
		assigned: map[string]map[logicalcluster.Key]bool{},
		assumed:  map[string]map[logicalcluster.Key]steady.Instant{},

		effective: map[logicalcluster.Name][]*scheduling.Location{},
		locations: map[logicalcluster.Key]builtLocation{},
	}
	f.targets.byKey = map[string]targetEntry{}
	deps.Assignments.AddHandler(f.assignmentChanged)
	deps.SyncTargets.AddHandler(f.targetChanged)
	deps.Locations.AddHandler(f.locationChanged)
	return f
}

// OnChange registers a function to be called after a change of a SyncTarget or Location
// that matters to decisions. Register before the informers start. The functions must not
// block.
func (f *Fleet) OnChange(fn func(Change)) { f.onChange = append(f.onChange, fn) }

// ListeningSince is when the server was started, by the wall clock as it shows now.
func (f *Fleet) ListeningSince(now time.Time) time.Time {
	return f.deps.Clock.At(f.hearing.started, now)
}

// HearingSince is the instant from which the silence of a target counts against it, by the
// wall clock as it shows now; see hearing.
func (f *Fleet) HearingSince(now time.Time) time.Time { return f.hearing.since(now) }

// LastHeard is when the server last saw a new heartbeat of a target, by the wall clock as it
// shows now; false when that was not since its start. What the syncer's own clock said in
// the heartbeat does not matter.
func (f *Fleet) LastHeard(key string, now time.Time) (time.Time, bool) {
	return f.heard.Last(key, now)
}

// changed forgets what Locations looked like that a change concerns, and announces it.
func (f *Fleet) changed(target string, locations ...logicalcluster.Key) {
	c := Change{Target: target, Locations: locations}
	seen := map[logicalcluster.Name]bool{}
	for _, l := range locations {
		if seen[l.Cluster] {
			// It lies below one before it.
			continue
		}
		for _, cluster := range f.deps.Descendants(l.Cluster) {
			if !seen[cluster] {
				seen[cluster] = true
				c.Clusters = append(c.Clusters, cluster)
			}
		}
	}
	f.mu.Lock()
	f.revision++
	for _, l := range locations {
		delete(f.locations, l)
	}
	for _, cluster := range c.Clusters {
		delete(f.effective, cluster)
	}
	f.mu.Unlock()
	for _, fn := range f.onChange {
		fn(c)
	}
}

// selecting returns the Locations that select, or might, from the targets of a cluster.
func (f *Fleet) selecting(cluster logicalcluster.Name) []logicalcluster.Key {
	path, _ := f.deps.Path(cluster)
	all := f.deps.Locations.List()
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []logicalcluster.Key
	for _, l := range all {
		key, from := logicalcluster.KeyOf(l), l.Spec.TargetWorkspace
		// The cluster that it was built from may have lost its path since.
		built, ok := f.locations[key]
		if from == "" && key.Cluster == cluster || from == string(cluster) || from != "" && from == path.String() || ok && built.from == cluster {
			out = append(out, key)
		}
	}
	return out
}

func (f *Fleet) targetChanged(e informer.Event[*workloadv1alpha1.SyncTarget]) {
	key := workloadv1alpha1.TargetKey(e.Key.Cluster, e.Object().UID)
	relevant := e.Added || e.Deleted
	if !relevant && !e.Old.Status.LastHeartbeatTime.Equal(e.New.Status.LastHeartbeatTime) {
		f.hearing.heard()
		f.heard.Saw(key, 0)
	}
	if !relevant && e.Old.UID != e.New.UID {
		// Deleted and made again between two looks: the old key is gone.
		old := workloadv1alpha1.TargetKey(e.Key.Cluster, e.Old.UID)
		f.targets.remove(old)
		f.heard.Forget(old)
		defer func() { f.changed(old, f.selecting(e.Key.Cluster)...) }()
		relevant = true
	}
	if !relevant {
		relevant = !equality.Semantic.DeepEqual(e.Old.Labels, e.New.Labels) ||
			differs(scheduling.NewTarget(e.Key.Cluster, e.Old), scheduling.NewTarget(e.Key.Cluster, e.New))
	}
	if e.Deleted {
		f.targets.remove(key)
		f.heard.Forget(key)
	} else {
		f.targets.set(key, targetEntry{e.Key, scheduling.NewTarget(e.Key.Cluster, e.New)})
	}
	if relevant {
		f.changed(key, f.selecting(e.Key.Cluster)...)
	}
}

// differs reports whether a target changed in a way that matters. While its syncer is
// heard, when it was last heard does not.
func differs(a, b *scheduling.Target) bool {
	if a.Ready && b.Ready {
		same := *a
		same.LastHeartbeat = b.LastHeartbeat
		a = &same
	}
	return *a != *b
}

func (f *Fleet) locationChanged(e informer.Event[*schedulingv1alpha1.Location]) {
	if !e.Added && !e.Deleted &&
		equality.Semantic.DeepEqual(e.Old.Spec, e.New.Spec) &&
		equality.Semantic.DeepEqual(e.Old.Labels, e.New.Labels) &&
		e.Old.DeletionTimestamp.Equal(e.New.DeletionTimestamp) {
		return
	}
	f.changed("", e.Key)
}

func (f *Fleet) assignmentChanged(e informer.Event[*schedulingv1alpha1.Assignment]) {
	target, namespace := e.Key.Name, NamespaceKey(e.Key.Cluster, e.Key.Namespace)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.assumed[target], namespace)
	if e.Deleted {
		delete(f.assigned[target], namespace)
		return
	}
	if f.assigned[target] == nil {
		f.assigned[target] = map[logicalcluster.Key]bool{}
	}
	f.assigned[target][namespace] = true
}

// NamespaceKey returns the key by which a namespace is known to the controllers of
// placement: the one of the Namespace object.
func NamespaceKey(cluster logicalcluster.Name, namespace string) logicalcluster.Key {
	return logicalcluster.Key{Cluster: cluster, Name: namespace}
}

// assumption is how long a namespace counts as assigned on the word of Assume.
const assumption = 10 * time.Second

// Assume counts a namespace as assigned before the informer has seen its Assignment, so
// that decisions which follow at once spread.
func (f *Fleet) Assume(target string, namespace logicalcluster.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.assigned[target][namespace] {
		return
	}
	if f.assumed[target] == nil {
		f.assumed[target] = map[logicalcluster.Key]steady.Instant{}
	}
	f.assumed[target][namespace] = f.deps.Clock.Ago(0)
}

// Namespaces counts the namespaces that a target has, or was given a moment ago.
func (f *Fleet) Namespaces(target string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	for namespace, since := range f.assumed[target] {
		if f.deps.Clock.Age(since) > assumption {
			delete(f.assumed[target], namespace)
		}
	}
	return len(f.assigned[target]) + len(f.assumed[target])
}

// AssignedTo returns the namespaces that a target has.
func (f *Fleet) AssignedTo(target string) []logicalcluster.Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]logicalcluster.Key, 0, len(f.assigned[target]))
	for key := range f.assigned[target] {
		out = append(out, key)
	}
	return out
}

// Target returns the scheduler's view of a target, nil when there is none of that key.
func (f *Fleet) Target(key string) *scheduling.Target {
	e, ok := f.targets.get(key)
	if !ok {
		return nil
	}
	return e.target
}

// TargetAt is Target with the last heartbeat as the server itself has heard it, by the wall
// clock as it shows now. A target that it has not heard yet was last heard before its start,
// whenever that was.
func (f *Fleet) TargetAt(now time.Time) func(key string) *scheduling.Target {
	return func(key string) *scheduling.Target {
		t := f.Target(key)
		if t == nil || t.LastHeartbeat.IsZero() {
			return t
		}
		seen := *t
		if heard, ok := f.LastHeard(key, now); ok {
			seen.LastHeartbeat = heard
		} else if started := f.ListeningSince(now); seen.LastHeartbeat.After(started) {
			seen.LastHeartbeat = started
		}
		return &seen
	}
}

// SyncTarget returns the key of the SyncTarget object behind a target key.
func (f *Fleet) SyncTarget(key string) (logicalcluster.Key, bool) {
	e, ok := f.targets.get(key)
	return e.object, ok
}

// NameTargets replaces the target keys of a message by the names of the SyncTargets that
// stand in cluster: whoever is in charge there may know those, unlike the tenant for whom
// the message was written. find is Fleet.SyncTarget.
func NameTargets(message string, cluster logicalcluster.Name, find func(key string) (logicalcluster.Key, bool)) string {
	words := strings.Split(message, " ")
	for i, word := range words {
		key := strings.TrimRight(word, ":;,")
		if target, ok := find(key); ok && target.Cluster == cluster {
			words[i] = target.Name + word[len(key):]
		}
	}
	return strings.Join(words, " ")
}

// EffectiveLocations returns the Locations that a workspace sees, with their targets,
// sorted by name.
func (f *Fleet) EffectiveLocations(ctx context.Context, cluster logicalcluster.Name) []*scheduling.Location {
	names := f.deps.Ancestors(cluster)
	// Workspaces that have no Location of their own share the result of the nearest
	// ancestor that has one.
	for len(names) > 0 && len(f.deps.Locations.ListCluster(names[0])) == 0 {
		names = names[1:]
	}
	if len(names) == 0 {
		return nil
	}
	f.mu.Lock()
	revision, cached := f.revision, f.effective[names[0]]
	f.mu.Unlock()
	if cached != nil {
		return cached
	}
	out := []*scheduling.Location{}
	complete := true
	for _, l := range scheduling.EffectiveLocations(scheduling.AncestorsOf(names, f.deps.Path), f.deps.Locations.ListCluster) {
		built := f.Location(ctx, l)
		complete = complete && built.Problem == ""
		out = append(out, built)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// What hindered a Location may go away without an event here, so it is asked again.
	if complete && f.revision == revision {
		f.effective[names[0]] = out
	}
	return out
}

// Location returns the scheduler's view of one Location.
func (f *Fleet) Location(ctx context.Context, l *schedulingv1alpha1.Location) *scheduling.Location {
	key := logicalcluster.KeyOf(l)
	f.mu.Lock()
	revision, cached := f.revision, f.locations[key].view
	f.mu.Unlock()
	if cached != nil {
		return cached
	}
	from, targets, problem := f.selected(ctx, l)
	path, ok := f.deps.Path(key.Cluster)
	if !ok {
		path = key.Cluster.Path()
	}
	built := scheduling.NewLocation(l, path, targets, problem)
	f.mu.Lock()
	defer f.mu.Unlock()
	if problem == "" && f.revision == revision {
		f.locations[key] = builtLocation{built, from}
	}
	return built
}

// selected returns the targets that a Location selects, and the cluster that they are in.
func (f *Fleet) selected(ctx context.Context, l *schedulingv1alpha1.Location) (cluster logicalcluster.Name, targets []*scheduling.Target, problem string) {
	cluster = logicalcluster.From(l)
	if path := logicalcluster.Path(l.Spec.TargetWorkspace); path != "" {
		resolved, err := f.deps.Resolve(ctx, path)
		if err != nil {
			return cluster, nil, fmt.Sprintf("its targetWorkspace %q cannot be found", path)
		}
		if resolved != cluster && !f.deps.MayUse(l, resolved) {
			return cluster, nil, fmt.Sprintf("it may not use the targets of workspace %q", path)
		}
		cluster = resolved
	}
	selector := labels.Everything()
	if l.Spec.InstanceSelector != nil {
		s, err := metav1.LabelSelectorAsSelector(l.Spec.InstanceSelector)
		if err != nil {
			return cluster, nil, fmt.Sprintf("its instanceSelector is malformed: %v", err)
		}
		selector = s
	}
	for _, st := range f.deps.SyncTargets.ListCluster(cluster) {
		if selector.Matches(labels.Set(st.Labels)) {
			targets = append(targets, scheduling.NewTarget(cluster, st))
		}
	}
	return cluster, targets, ""
}

// targetIndex finds targets by key.
type targetIndex struct {
	mu    sync.RWMutex
	byKey map[string]targetEntry
}

type targetEntry struct {
	object logicalcluster.Key
	target *scheduling.Target
}

func (i *targetIndex) get(key string) (targetEntry, bool) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	e, ok := i.byKey[key]
	return e, ok
}

func (i *targetIndex) set(key string, e targetEntry) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.byKey[key] = e
}

func (i *targetIndex) remove(key string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.byKey, key)
}
