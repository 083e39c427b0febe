package workload

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/cli/console"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func drainingTarget(state workloadv1alpha1.DrainState, remaining int32, namespaces ...workloadv1alpha1.DrainNamespace) *workloadv1alpha1.SyncTarget {
	at := metav1.NewTime(start)
	return &workloadv1alpha1.SyncTarget{
		ObjectMeta: metav1.ObjectMeta{Name: "t", UID: "u"},
		Spec:       workloadv1alpha1.SyncTargetSpec{EvictAfter: &at},
		Status: workloadv1alpha1.SyncTargetStatus{Drain: &workloadv1alpha1.DrainStatus{
			State: state, ObservedEvictAfter: &at, Remaining: remaining, Namespaces: namespaces,
		}},
	}
}

func newFollower(out io.Writer, clock *clocktesting.FakeClock) *follower {
	c := &console.Console{Err: out}
	return &follower{Drain: &Drain{Console: c, Clock: clock}, progress: c.Progress(clock), name: "t", uid: "u"}
}

// TestBlockedForAWhile pins that the time for which a drain is blocked counts without
// interruption.
func TestBlockedForAWhile(t *testing.T) {
	clock := clocktesting.NewFakeClock(start)
	f := newFollower(&bytes.Buffer{}, clock)
	see := func(state workloadv1alpha1.DrainState) {
		t.Helper()
		if done, err := f.observe(drainingTarget(state, 1)); done || err != nil {
			t.Fatalf("observe: %v, %v", done, err)
		}
	}
	see(workloadv1alpha1.DrainBlocked)
	clock.Step(2 * time.Second)
	see(workloadv1alpha1.DrainBlocked)
	if got := clock.Since(f.blockedSince); got != 2*time.Second {
		t.Errorf("blocked for %s, want 2s", got)
	}
	see(workloadv1alpha1.DrainDraining)
	if f.blockedTimer() != nil {
		t.Error("a drain that goes on counts as blocked")
	}
	clock.Step(2 * time.Second)
	see(workloadv1alpha1.DrainBlocked)
	timer := f.blockedTimer()
	clock.Step(blockedFor - time.Millisecond)
	select {
	case <-timer:
		t.Fatal("gave up too early")
	default:
	}
	clock.Step(time.Millisecond)
	select {
	case <-timer:
	default:
		t.Error("did not give up in time")
	}
}

// TestShow pins what is printed: changes only, and "gone" only where the list is
// complete.
func TestShow(t *testing.T) {
	ns := func(name, stage string) workloadv1alpha1.DrainNamespace {
		return workloadv1alpha1.DrainNamespace{Workspace: "root:a", Namespace: name, Stage: stage}
	}
	var out bytes.Buffer
	f := newFollower(&out, clocktesting.NewFakeClock(start))
	for _, target := range []*workloadv1alpha1.SyncTarget{
		drainingTarget(workloadv1alpha1.DrainDraining, 2, ns("x", "Applying"), ns("y", "Pending")),
		drainingTarget(workloadv1alpha1.DrainDraining, 2, ns("x", "Applying"), ns("y", "Pending")),
		drainingTarget(workloadv1alpha1.DrainDraining, 2, ns("y", "Applying")), // cut off: x is not gone
		drainingTarget(workloadv1alpha1.DrainDraining, 2, ns("x", "Removing"), ns("y", "Applying")),
		drainingTarget(workloadv1alpha1.DrainDraining, 1, ns("y", "Applying")),
	} {
		if _, err := f.observe(target); err != nil {
			t.Fatal(err)
		}
	}
	want := `  root:a/x  Applying
  root:a/y  Pending
  root:a/y  Applying
  root:a/x  Removing
  root:a/x  gone
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// TestSummary pins the line that a terminal shows while a drain goes on.
func TestSummary(t *testing.T) {
	ns := func(stage string) workloadv1alpha1.DrainNamespace {
		return workloadv1alpha1.DrainNamespace{Workspace: "root:a", Namespace: stage, Stage: stage}
	}
	for name, tc := range map[string]struct {
		remaining  int32
		namespaces []workloadv1alpha1.DrainNamespace
		want       string
	}{
		"stages are counted": {3, []workloadv1alpha1.DrainNamespace{ns("Removing"), ns("Applying"), ns("Removing")}, "t: 3 namespaces left: 1 Applying, 2 Removing"},
		"one":                {1, []workloadv1alpha1.DrainNamespace{ns("Applying")}, "t: 1 namespace left: 1 Applying"},
		"more than listed":   {900, []workloadv1alpha1.DrainNamespace{ns("Applying")}, "t: 900 namespaces left: 1 Applying"},
		"none":               {0, nil, "t: 0 namespaces left"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFollower(io.Discard, clocktesting.NewFakeClock(start))
			f.status = drainingTarget(workloadv1alpha1.DrainDraining, tc.remaining, tc.namespaces...).Status.Drain
			if got := f.summary(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
