package scheduling

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Target is what the scheduler needs to know of a SyncTarget.
type Target struct {
	// Key is the opaque target key. Tenants read reasons, so nothing here that names
	// the SyncTarget gets into one.
	Key string
	// Unschedulable, EvictAfter (zero when unset) and ForceEvict are the spec's.
	Unschedulable bool
	EvictAfter    time.Time
	ForceEvict    bool
	// Deleting is true once somebody asked for the SyncTarget's deletion.
	Deleting bool
	// Ready is the Ready condition; without it LastHeartbeat (zero: never) tells since
	// when the syncer has been silent.
	Ready         bool
	LastHeartbeat time.Time
	Created       time.Time
	// MilliCPU is the allocatable CPU, 0 when unknown.
	MilliCPU int64
}

// NewTarget returns the scheduler's view of st, which stands in cluster.
func NewTarget(cluster logicalcluster.Name, st *workloadv1alpha1.SyncTarget) *Target {
	t := &Target{
		Key:           workloadv1alpha1.TargetKey(cluster, st.UID),
		Unschedulable: st.Spec.Unschedulable,
		ForceEvict:    st.Spec.ForceEvict,
		Deleting:      st.DeletionTimestamp != nil,
		Ready:         meta.IsStatusConditionTrue(st.Status.Conditions, workloadv1alpha1.SyncTargetReady),
		Created:       st.CreationTimestamp.Time,
		MilliCPU:      st.Status.Allocatable.Name(corev1.ResourceCPU, "").MilliValue(),
	}
	if st.Spec.EvictAfter != nil {
		t.EvictAfter = st.Spec.EvictAfter.Time
	}
	if st.Status.LastHeartbeatTime != nil {
		t.LastHeartbeat = st.Status.LastHeartbeatTime.Time
	}
	return t
}

// draining reports whether the instant of EvictAfter has come.
func (t *Target) draining(now time.Time) bool {
	return !t.EvictAfter.IsZero() && !t.EvictAfter.After(now)
}

// SilentSince returns the instant from which a target's silence counts: the last
// heartbeat, but not before the server itself was there to hear one.
func (t *Target) SilentSince(listeningSince time.Time) time.Time {
	since := t.LastHeartbeat
	if since.IsZero() {
		since = t.Created
	}
	if since.Before(listeningSince) {
		return listeningSince
	}
	return since
}

// Location is an effective Location with the targets that it selects. It is immutable.
type Location struct {
	Name   string
	Path   string
	Labels map[string]string
	// Problem says in words why the Location has no targets, where that is not for the
	// lack of matching ones.
	Problem string

	targets []*Target
	byKey   map[string]*Target
}

// NewLocation returns the scheduler's view of l, which stands in the workspace of that
// path.
func NewLocation(l *schedulingv1alpha1.Location, path logicalcluster.Path, targets []*Target, problem string) *Location {
	out := &Location{
		Name:    l.Name,
		Path:    string(path),
		Labels:  l.Labels,
		Problem: problem,
		targets: targets,
		byKey:   make(map[string]*Target, len(targets)),
	}
	for _, t := range targets {
		out.byKey[t.Key] = t
	}
	return out
}

// Targets returns the targets that the Location selects; the caller changes nothing.
func (l *Location) Targets() []*Target { return l.targets }

// Replace returns the Locations as they would be with another view of one target.
func Replace(locations []*Location, target *Target) []*Location {
	out := make([]*Location, len(locations))
	for i, l := range locations {
		out[i] = l
		old := l.byKey[target.Key]
		if old == nil {
			continue
		}
		copied := *l
		copied.targets, copied.byKey = slices.Clone(l.targets), maps.Clone(l.byKey)
		copied.targets[slices.Index(l.targets, old)], copied.byKey[target.Key] = target, target
		out[i] = &copied
	}
	return out
}

// fitting returns the Locations that the Placement selects, in the order given.
func fitting(placement *schedulingv1alpha1.Placement, locations []*Location) ([]*Location, error) {
	if len(placement.Spec.LocationSelectors) == 0 {
		return locations, nil
	}
	selectors := make([]labels.Selector, 0, len(placement.Spec.LocationSelectors))
	for i := range placement.Spec.LocationSelectors {
		s, err := metav1.LabelSelectorAsSelector(&placement.Spec.LocationSelectors[i])
		if err != nil {
			return nil, err
		}
		selectors = append(selectors, s)
	}
	var out []*Location
	for _, l := range locations {
		for _, s := range selectors {
			if s.Matches(labels.Set(l.Labels)) {
				out = append(out, l)
				break
			}
		}
	}
	return out, nil
}

// PlacementFor returns the Placement that decides for a namespace with these labels:
// the first by name that selects it and is not being deleted, or nil. One whose
// selector is malformed selects nothing.
func PlacementFor(placements []*schedulingv1alpha1.Placement, namespaceLabels map[string]string) *schedulingv1alpha1.Placement {
	var first *schedulingv1alpha1.Placement
	for _, p := range placements {
		if p.DeletionTimestamp != nil || first != nil && strings.Compare(first.Name, p.Name) <= 0 {
			continue
		}
		if p.Spec.NamespaceSelector != nil {
			s, err := metav1.LabelSelectorAsSelector(p.Spec.NamespaceSelector)
			if err != nil || !s.Matches(labels.Set(namespaceLabels)) {
				continue
			}
		}
		first = p
	}
	return first
}
