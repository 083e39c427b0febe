package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/scheduling"
	"github.com/13eedeaf/kcp/pkg/steady"
)

// feed is an informer whose objects the test puts in and out.
type feed[T informer.Object] struct {
	*informer.Informer[T]
	t     *testing.T
	watch *watch.FakeWatcher
	// seen gets each event after all other handlers have.
	seen chan informer.Event[T]
}

func newFeed[T informer.Object](t *testing.T, bookmark T) *feed[T] {
	t.Helper()
	f := &feed[T]{t: t, watch: watch.NewFake(), seen: make(chan informer.Event[T], 100)}
	f.Informer = informer.New[T]("test", informer.Stream(func(context.Context, metav1.ListOptions) (watch.Interface, error) { return f.watch, nil }), nil)
	go f.Run(t.Context())
	bookmark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	f.watch.Action(watch.Bookmark, bookmark)
	f.WaitForSync(t.Context())
	return f
}

// last registers the handler that tells the test of an event; call it after all others.
func (f *feed[T]) last() { f.AddHandler(func(e informer.Event[T]) { f.seen <- e }) }

var version int

func (f *feed[T]) send(action watch.EventType, obj T) {
	f.t.Helper()
	version++
	obj = obj.DeepCopyObject().(T)
	obj.SetResourceVersion(fmt.Sprint(version))
	f.watch.Action(action, obj)
	select {
	case <-f.seen:
	case <-time.After(10 * time.Second):
		f.t.Fatal("the informer did not pass the event on")
	}
}

func in(cluster, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-of-" + cluster + "-" + name),
		Annotations: map[string]string{logicalcluster.AnnotationKey: cluster},
	}
}

func key(cluster, name string) string {
	return workloadv1alpha1.TargetKey(logicalcluster.Name(cluster), types.UID("uid-of-"+cluster+"-"+name))
}

func target(cluster, name, region string) *workloadv1alpha1.SyncTarget {
	st := &workloadv1alpha1.SyncTarget{ObjectMeta: in(cluster, name)}
	st.Labels = map[string]string{"region": region}
	return st
}

type fixture struct {
	*Fleet
	targets     *feed[*workloadv1alpha1.SyncTarget]
	locations   *feed[*schedulingv1alpha1.Location]
	assignments *feed[*schedulingv1alpha1.Assignment]
	clock       *clocktesting.FakeClock
	mayUse      bool
	// changed has what the Fleet announced, in words.
	changed []string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{
		targets:     newFeed(t, &workloadv1alpha1.SyncTarget{}),
		locations:   newFeed(t, &schedulingv1alpha1.Location{}),
		assignments: newFeed(t, &schedulingv1alpha1.Assignment{}),
		clock:       clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)),
		mayUse:      true,
	}
	below := map[logicalcluster.Name][]logicalcluster.Name{"root": {"root", "org", "team"}, "org": {"org", "team"}}
	tree := map[logicalcluster.Name][]logicalcluster.Name{"root": {"root"}, "org": {"org", "root"}, "team": {"team", "org", "root"}}
	paths := map[logicalcluster.Name]logicalcluster.Path{"root": "root", "org": "root:org", "team": "root:org:team", "compute": "root:compute"}
	f.Fleet = NewFleet(FleetDeps{
		SyncTargets: f.targets.Informer, Locations: f.locations.Informer, Assignments: f.assignments.Informer,
		Path: func(n logicalcluster.Name) (logicalcluster.Path, bool) { p, ok := paths[n]; return p, ok },
		Ancestors: func(n logicalcluster.Name) []logicalcluster.Name {
			return tree[n]
		},
		Descendants: func(n logicalcluster.Name) []logicalcluster.Name {
			if all, ok := below[n]; ok {
				return all
			}
			return []logicalcluster.Name{n}
		},
		Resolve: func(_ context.Context, p logicalcluster.Path) (logicalcluster.Name, error) {
			for name, path := range paths {
				if path == p {
					return name, nil
				}
			}
			return "", errors.New("not found")
		},
		MayUse: func(*schedulingv1alpha1.Location, logicalcluster.Name) bool { return f.mayUse },
		Clock:  steady.Clock{Wall: f.clock, Steady: f.clock},
	})
	f.OnChange(func(c Change) {
		said := c.Target
		if said == "" {
			said = "location"
		}
		for _, l := range c.Locations {
			said += fmt.Sprintf(" %s/%s", l.Cluster, l.Name)
		}
		if len(c.Clusters) > 0 {
			said += fmt.Sprintf(" seen in %v", c.Clusters)
		}
		f.changed = append(f.changed, said)
	})
	f.targets.last()
	f.locations.last()
	f.assignments.last()
	return f
}

func (f *fixture) say(t *testing.T, cluster logicalcluster.Name) string {
	t.Helper()
	var out []string
	for _, l := range f.EffectiveLocations(t.Context(), cluster) {
		var targets []string
		for _, target := range l.Targets() {
			object, _ := f.SyncTarget(target.Key)
			targets = append(targets, object.Name)
		}
		slices.Sort(targets)
		line := fmt.Sprintf("%s of %s: %s", l.Name, l.Path, strings.Join(targets, " "))
		if l.Problem != "" {
			line += l.Problem
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func (f *fixture) wantChanged(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, f.changed); diff != "" {
		t.Errorf("announced changes (-want +got):\n%s", diff)
	}
	f.changed = nil
}

func TestFleetLocations(t *testing.T) {
	f := newFixture(t)
	want := func(cluster logicalcluster.Name, want string) {
		t.Helper()
		if diff := cmp.Diff(want, f.say(t, cluster)); diff != "" {
			t.Errorf("Locations of %s (-want +got):\n%s", cluster, diff)
		}
	}
	want("team", "")
	f.targets.send(watch.Added, target("compute", "us-east1", "us"))
	f.targets.send(watch.Added, target("compute", "eu-west1", "eu"))
	f.wantChanged(t, key("compute", "us-east1"), key("compute", "eu-west1"))

	location := &schedulingv1alpha1.Location{ObjectMeta: in("root", "default"), Spec: schedulingv1alpha1.LocationSpec{TargetWorkspace: "root:compute"}}
	f.locations.send(watch.Added, location)
	f.wantChanged(t, "location root/default seen in [root org team]")
	want("team", "default of root: eu-west1 us-east1")

	// A new target is seen at once, though the Location was cached.
	f.targets.send(watch.Added, target("compute", "us-west1", "us"))
	f.wantChanged(t, key("compute", "us-west1")+" root/default seen in [root org team]")
	want("team", "default of root: eu-west1 us-east1 us-west1")

	narrowed := &schedulingv1alpha1.Location{ObjectMeta: in("org", "default"), Spec: schedulingv1alpha1.LocationSpec{
		TargetWorkspace: "root:compute", InstanceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "us"}},
	}}
	f.locations.send(watch.Added, narrowed)
	want("team", "default of root:org: us-east1 us-west1")
	want("root", "default of root: eu-west1 us-east1 us-west1")

	// A changed label changes what is selected.
	f.targets.send(watch.Modified, target("compute", "us-west1", "eu"))
	want("team", "default of root:org: us-east1")

	f.locations.send(watch.Deleted, narrowed)
	f.targets.send(watch.Deleted, target("compute", "us-west1", "eu"))
	want("team", "default of root: eu-west1 us-east1")
	if f.Target(key("compute", "us-west1")) != nil {
		t.Error("a deleted SyncTarget is still known")
	}

	f.mayUse = false
	f.targets.send(watch.Added, target("compute", "us-west1", "us"))
	want("team", `default of root: it may not use the targets of workspace "root:compute"`)
	f.mayUse = true
	want("team", "default of root: eu-west1 us-east1 us-west1")

	lost := location.DeepCopy()
	lost.Spec.TargetWorkspace = "root:nowhere"
	f.locations.send(watch.Modified, lost)
	want("team", `default of root: its targetWorkspace "root:nowhere" cannot be found`)
}

// TestChangesOfOneTenant: what a tenant does with targets and Locations of its own is
// announced to those below it alone, and what others see stays as it was found.
func TestChangesOfOneTenant(t *testing.T) {
	f := newFixture(t)
	f.targets.send(watch.Added, target("compute", "us-east1", "us"))
	f.locations.send(watch.Added, &schedulingv1alpha1.Location{ObjectMeta: in("root", "default"), Spec: schedulingv1alpha1.LocationSpec{TargetWorkspace: "root:compute"}})
	before := f.EffectiveLocations(t.Context(), "org")
	f.changed = nil

	f.targets.send(watch.Added, target("team", "own", "us"))
	f.wantChanged(t, key("team", "own"))
	f.locations.send(watch.Added, &schedulingv1alpha1.Location{ObjectMeta: in("team", "own")})
	f.wantChanged(t, "location team/own seen in [team]")
	f.targets.send(watch.Modified, target("team", "own", "eu"))
	f.wantChanged(t, key("team", "own")+" team/own seen in [team]")
	if got := f.say(t, "team"); got != "own of root:org:team: own\ndefault of root: us-east1" && got != "default of root: us-east1\nown of root:org:team: own" {
		t.Errorf("Locations of the tenant: %s", got)
	}
	if after := f.EffectiveLocations(t.Context(), "org"); after[0] != before[0] {
		t.Error("what others see was made anew")
	}
}

func TestFleetIgnoresHeartbeats(t *testing.T) {
	f := newFixture(t)
	st := target("compute", "us-east1", "us")
	st.Status.Conditions = []metav1.Condition{{Type: workloadv1alpha1.SyncTargetReady, Status: metav1.ConditionTrue}}
	us := key("compute", "us-east1")
	f.targets.send(watch.Added, st)
	f.wantChanged(t, us)

	beat := metav1.NewTime(f.clock.Now())
	st.Status.LastHeartbeatTime = &beat
	f.targets.send(watch.Modified, st)
	f.wantChanged(t)
	if got := f.Target(us).LastHeartbeat; !got.Equal(beat.Time) {
		t.Errorf("last heartbeat = %s, want %s", got, beat)
	}

	for name, change := range map[string]func(){
		"cordon":  func() { st.Spec.Unschedulable = true },
		"drain":   func() { st.Spec.EvictAfter = &beat },
		"silence": func() { st.Status.Conditions[0].Status = metav1.ConditionFalse },
		"delete":  func() { st.DeletionTimestamp = &beat },
	} {
		change()
		f.targets.send(watch.Modified, st)
		if len(f.changed) != 1 {
			t.Errorf("%s announced %v, want %s", name, f.changed, us)
		}
		f.changed = nil
	}
}

func TestFleetCounts(t *testing.T) {
	f := newFixture(t)
	a := &schedulingv1alpha1.Assignment{ObjectMeta: in("team", "t1")}
	a.Namespace = "web"
	web, db := NamespaceKey("team", "web"), NamespaceKey("team", "db")

	f.Assume("t1", web)
	f.Assume("t1", db)
	if got := f.Namespaces("t1"); got != 2 {
		t.Errorf("namespaces assumed = %d, want 2", got)
	}
	f.assignments.send(watch.Added, a)
	if diff := cmp.Diff([]logicalcluster.Key{web}, f.AssignedTo("t1")); diff != "" {
		t.Errorf("assigned (-want +got):\n%s", diff)
	}
	if got := f.Namespaces("t1"); got != 2 {
		t.Errorf("namespaces = %d, want 2", got)
	}
	// What never appeared is forgotten.
	f.clock.Step(assumption + time.Second)
	if got := f.Namespaces("t1"); got != 1 {
		t.Errorf("namespaces later = %d, want 1", got)
	}
	f.assignments.send(watch.Deleted, a)
	if got := f.Namespaces("t1"); got != 0 || len(f.AssignedTo("t1")) != 0 {
		t.Errorf("namespaces in the end = %d, assigned %v, want none", got, f.AssignedTo("t1"))
	}
}

func TestPlacementStatus(t *testing.T) {
	east := &scheduling.Target{Key: "t1", Ready: true}
	west := &scheduling.Target{Key: "t2", Ready: true, Unschedulable: true}
	location := scheduling.NewLocation(&schedulingv1alpha1.Location{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, "root", []*scheduling.Target{east, west}, "")
	judge := func(namespaces int, locations ...*scheduling.Location) scheduling.Verdicts {
		return scheduling.Judge(&schedulingv1alpha1.Placement{}, locations, func(string) int { return namespaces }, time.Now())
	}

	got := statusOf(judge(3, location), 0)
	want := schedulingv1alpha1.PlacementStatus{
		Phase:   schedulingv1alpha1.PlacementUnbound,
		Message: "1 of 2 targets can take a new namespace",
		Candidates: []schedulingv1alpha1.PlacementCandidate{
			{Location: "default", LocationPath: "root", Target: "t1", Eligible: true, Reason: "3 namespaces"},
			{Location: "default", LocationPath: "root", Target: "t2", Reason: "it is cordoned"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if got := statusOf(judge(3, location), 2).Phase; got != schedulingv1alpha1.PlacementBound {
		t.Errorf("phase with namespaces = %s", got)
	}
	if got := statusOf(judge(0), 0); got.Phase != schedulingv1alpha1.PlacementPending || got.Message != "no Location fits" {
		t.Errorf("without a Location: %s %q", got.Phase, got.Message)
	}

	if later := judge(4, location); changed(got, statusOf(later, 0), later) {
		t.Error("another score alone is written")
	}
	east.Unschedulable = true
	if later := judge(3, location); !changed(got, statusOf(later, 0), later) {
		t.Error("a cordon is not written")
	}
}

func TestNameTargets(t *testing.T) {
	find := func(key string) (logicalcluster.Key, bool) {
		known := map[string]logicalcluster.Key{
			"t1": {Cluster: "compute", Name: "us-east1"},
			"t2": {Cluster: "compute", Name: "us-west1"},
			"t3": {Cluster: "elsewhere", Name: "secret"},
		}
		target, ok := known[key]
		return target, ok
	}
	message := `no other target can take over: t1 at Location "a": it is cordoned; it replaces t2: x; t3 at Location "a": it is cordoned`
	want := `no other target can take over: us-east1 at Location "a": it is cordoned; it replaces us-west1: x; t3 at Location "a": it is cordoned`
	if got := NameTargets(message, "compute", find); got != want {
		t.Errorf("message = %q, want %q", got, want)
	}
}
