package integration

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/server/options"
	"github.com/13eedeaf/kcp/test/framework"
)

// wallClock is the server's wall clock, which the test sets. Timers run on, as they do when
// a machine's clock is set.
type wallClock struct {
	clock.RealClock
	offset atomic.Int64
}

// Now has no reading of the monotonic clock, in which a jump would not show.
func (c *wallClock) Now() time.Time {
	return time.Now().Round(0).Add(time.Duration(c.offset.Load()))
}

// Since is by the wall clock.
func (c *wallClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// set puts the clock so far ahead of the machine's.
func (c *wallClock) set(offset time.Duration) { c.offset.Store(int64(offset)) }

// clockStage is a stage whose server has a clock that the test sets. Syncers and gateways
// have the machine's.
type clockStage struct {
	*stage
	clock *wallClock
	// unready has how often each SyncTarget was seen not to be ready.
	unready func() map[string]int
}

// evictAfter sets that of a SyncTarget, by the server's clock.
func (s *clockStage) evictAfter(name string, in time.Duration) {
	s.t.Helper()
	s.patchTarget(name, fmt.Sprintf(`{"spec":{"evictAfter":%q}}`, s.clock.Now().Add(in).UTC().Format(time.RFC3339)))
}

// watchReady watches from now on which SyncTargets are not ready.
func (s *clockStage) watchReady() {
	s.t.Helper()
	list, err := s.clients.SyncTargets(s.compute).List(s.t.Context(), metav1.ListOptions{})
	s.must(err)
	w, err := s.clients.SyncTargets(s.compute).Watch(s.t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	s.must(err)
	seen := make(chan map[string]int, 1)
	go func() {
		out := map[string]int{}
		for e := range w.ResultChan() {
			st, ok := e.Object.(*workloadv1alpha1.SyncTarget)
			if ok && !meta.IsStatusConditionTrue(st.Status.Conditions, workloadv1alpha1.SyncTargetReady) {
				out[st.Name]++
			}
		}
		seen <- out
	}()
	s.unready = func() map[string]int {
		w.Stop()
		return <-seen
	}
}

// beats waits until both syncers have been heard a few times more.
func (s *clockStage) beats() {
	s.t.Helper()
	for _, name := range []string{"east", "west"} {
		before := s.target(name).Status.LastHeartbeatTime.Time
		framework.Eventually(s.t, name+" beats", func(context.Context) (bool, string) {
			now := s.target(name).Status.LastHeartbeatTime.Time
			return now.Sub(before) > 3*time.Second, now.String()
		})
	}
}

// noticed waits until the controllers have looked again at what waits for an instant: a
// target without a syncer that is to be drained in half an hour tells.
func (s *clockStage) noticed(jump func()) {
	s.t.Helper()
	s.evictAfter("spare", 30*time.Minute)
	s.drain("spare", workloadv1alpha1.DrainWaiting)
	jump()
	s.drain("spare", workloadv1alpha1.DrainEmpty)
}

// TestClockIsSet sets the server's clock by an hour, forward and back. The clocks of the
// syncers and of the gateway stay as they are, so that they differ from the server's by as
// much.
func TestClockIsSet(t *testing.T) {
	wall := &wallClock{}
	parent := newStage(t, func(o *options.Options) { o.Clock = wall })
	_, err := parent.clients.SyncTargets(parent.compute).Create(t.Context(), &workloadv1alpha1.SyncTarget{ObjectMeta: metav1.ObjectMeta{Name: "spare"}}, metav1.CreateOptions{})
	parent.must(err)
	parent.renew()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s *clockStage)
	}{
		{"ForwardMovesNothing", testForwardMovesNothing},
		{"EvictAfterReachedByAJump", testEvictAfterReachedByAJump},
		{"BackMovesNothing", testBackMovesNothing},
		{"BackSilenceStillEnds", testBackSilenceStillEnds},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := *parent
			s.t = t
			test.run(t, &clockStage{stage: &s, clock: wall})
			*parent = s
			parent.t = t
		})
	}
}

// A jump forward makes nobody silent, and lets no gateway's lease run out.
func testForwardMovesNothing(t *testing.T, s *clockStage) {
	s.serving(namespaceWeb)
	before := s.assignments(namespaceWeb, "east Active Serving")["east"]
	s.watchReady()
	s.noticed(func() { s.clock.set(time.Hour) })
	s.beats()
	if unready := s.unready(); unready["east"]+unready["west"] > 0 {
		t.Errorf("targets that were heard all the time were not ready: %v", unready)
	}
	if after := s.assignments(namespaceWeb, "east Active Serving")["east"]; after.UID != before.UID || after.Generation != before.Generation {
		t.Errorf("the Assignment changed: %+v, before %+v", after, before)
	}
	i, err := s.kube.NetworkingV1().Ingresses(namespaceWeb).Get(t.Context(), "web", metav1.GetOptions{})
	s.must(err)
	if points := i.Status.LoadBalancer.Ingress; len(points) != 1 {
		t.Errorf("the Ingress has addresses %+v, want the gateway's", points)
	}
}

// An evictAfter that a jump reaches drains at once. The gateway still has its say, although
// by the server's clock its lease has long run out; and streams keep the time that they
// were promised.
func testEvictAfterReachedByAJump(t *testing.T, s *clockStage) {
	s.evictAfter("east", 30*time.Minute)
	s.drain("east", workloadv1alpha1.DrainWaiting)
	s.clock.set(2 * time.Hour)
	s.assignments(namespaceWeb, "east Active Serving", "west Active Syncing")
	s.report("west", namespaceWeb, 2)
	s.drain("east", workloadv1alpha1.DrainDraining, "WaitingForGateway")
	s.route(namespaceWeb, 0)
	s.assignments(namespaceWeb, "east Draining Draining", "west Active Serving")
	s.route(namespaceWeb, 3)
	s.inFlight("east", namespaceWeb, 3)
	s.noticed(func() { s.clock.set(3 * time.Hour) })
	s.route(namespaceWeb, 4)
	s.inFlight("east", namespaceWeb, 4)
	s.route(namespaceWeb, 0)
	s.assignments(namespaceWeb, "east going", "west Active Serving")
	s.removed("east", namespaceWeb)
	s.route(namespaceWeb, 0)
	s.assignments(namespaceWeb, "west Active Serving")
	s.uncordon("east")
}

// inFlight waits until a draining Assignment shows so many requests in flight and has a
// deadline.
func (s *clockStage) inFlight(name, namespace string, want int64) {
	s.t.Helper()
	framework.Eventually(s.t, fmt.Sprintf("%d in flight", want), func(ctx context.Context) (bool, string) {
		a, err := s.clients.Assignments(s.tenant, namespace).Get(ctx, s.key(name), metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		if a.DeletionTimestamp != nil {
			s.t.Fatal("the Assignment went before its deadline")
		}
		return a.Spec.DrainDeadline != nil && a.Status.InFlight == want, fmt.Sprintf("%+v", a)
	})
}

// A jump back takes back what has not begun, and loses nothing: an evictAfter whose timer
// was running is not taken for reached when the timer ends, and is when the clock says so.
func testBackMovesNothing(t *testing.T, s *clockStage) {
	s.evictAfter("west", 5*time.Second)
	s.drain("west", workloadv1alpha1.DrainWaiting)
	before := s.assignments(namespaceWeb, "west Active Serving")["west"]
	s.watchReady()
	s.clock.set(2 * time.Hour)
	// Longer than the timer was set for.
	s.beats()
	s.beats()
	if after := s.assignments(namespaceWeb, "west Active Serving")["west"]; after.UID != before.UID || after.Generation != before.Generation {
		t.Errorf("the Assignment changed: %+v, before %+v", after, before)
	}
	s.drain("west", workloadv1alpha1.DrainWaiting)
	if unready := s.unready(); unready["east"]+unready["west"] > 0 {
		t.Errorf("targets that were heard all the time were not ready: %v", unready)
	}
	s.clock.set(3 * time.Hour)
	s.assignments(namespaceWeb, "east Active Syncing", "west Active Serving")
	s.uncordon("west")
}

// After a jump back a syncer that falls silent is found to be, and is replaced, in the time
// that passes, not an hour later.
func testBackSilenceStillEnds(t *testing.T, s *clockStage) {
	s.report("east", namespaceWeb, 2)
	s.route(namespaceWeb, 0)
	framework.Eventually(t, "one place", func(ctx context.Context) (bool, string) {
		s.route(namespaceWeb, 0)
		list, err := s.clients.Assignments(s.tenant, namespaceWeb).List(ctx, metav1.ListOptions{})
		s.must(err)
		for i := range list.Items {
			if list.Items[i].DeletionTimestamp != nil {
				s.removed("east", namespaceWeb)
			}
		}
		return len(list.Items) == 1, fmt.Sprintf("%+v", list.Items)
	})
	s.assignments(namespaceWeb, "west Active Serving")
	_, err := s.clients.Placements(s.tenant).Patch(t.Context(), schedulingv1alpha1.DefaultPlacementName, types.MergePatchType, []byte(`{"spec":{"unreachableToleration":"5s"}}`), metav1.PatchOptions{})
	s.must(err)
	s.silence()
	s.speak("east")
	s.clock.set(0)
	framework.Eventually(t, "west is silent", func(context.Context) (bool, string) {
		c := meta.FindStatusCondition(s.target("west").Status.Conditions, workloadv1alpha1.SyncTargetReady)
		return c.Status == metav1.ConditionFalse, c.Message
	})
	s.assignments(namespaceWeb, "east Active Syncing", "west Active Serving")
}
