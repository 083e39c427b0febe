package scheduling

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
)

// twoTargets is an Input with targets east and west, both ready, in one Location.
func twoTargets() (in Input, east, west *Target) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	east, west = &Target{Key: "east", Ready: true, LastHeartbeat: now}, &Target{Key: "west", Ready: true, LastHeartbeat: now}
	targets := map[string]*Target{"east": east, "west": west}
	location := &v1alpha1.Location{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	return Input{
		Cluster: "abc", Namespace: "web",
		Placement:  &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		Locations:  []*Location{NewLocation(location, "root", []*Target{east, west}, "")},
		Target:     func(key string) *Target { return targets[key] },
		Namespaces: func(string) int { return 0 },
		Now:        now,
	}, east, west
}

// desired is what Decide wants, and whether a rule forces anything away.
func desired(in Input) []string {
	r := Decide(in)
	out := []string{}
	for _, a := range r.Desired {
		out = append(out, "at "+a.Target)
	}
	for _, m := range r.Moves {
		out = append(out, "not at "+m.Target)
	}
	return out
}

// TestLesson01CordonMovesNothing: a cordon is asked about new places only, whatever else is
// the matter with the target.
func TestLesson01CordonMovesNothing(t *testing.T) {
	for name, ready := range map[string]bool{"ready": true, "not ready": false} {
		in, east, _ := twoTargets()
		east.Unschedulable, east.Ready = true, ready
		if diff := cmp.Diff([]string{"at west"}, desired(in)); diff != "" {
			t.Errorf("%s: a new namespace (-want +got):\n%s", name, diff)
		}
		in.Current = []Current{{Target: "east", Serving: true, Location: "default"}}
		if diff := cmp.Diff([]string{"at east"}, desired(in)); diff != "" {
			t.Errorf("%s: a namespace that is there (-want +got):\n%s", name, diff)
		}
	}
}

// TestLesson11NoWayBack: a cluster that returns gets nothing back by itself, and whoever
// has to leave the other one may go there again: nothing remembers that it was left.
func TestLesson11NoWayBack(t *testing.T) {
	in, east, west := twoTargets()
	east.Ready, east.LastHeartbeat = false, in.Now.Add(-time.Hour)
	in.Current = []Current{{Target: "east", Serving: true, Location: "default"}}
	if diff := cmp.Diff([]string{"at west", "not at east"}, desired(in)); diff != "" {
		t.Errorf("east is silent (-want +got):\n%s", diff)
	}
	in.Current = []Current{{Target: "west", Serving: true, Location: "default"}}
	east.Ready, east.LastHeartbeat = true, in.Now
	if diff := cmp.Diff([]string{"at west"}, desired(in)); diff != "" {
		t.Errorf("east is back (-want +got):\n%s", diff)
	}
	west.EvictAfter = in.Now
	if diff := cmp.Diff([]string{"at east", "not at west"}, desired(in)); diff != "" {
		t.Errorf("west is drained (-want +got):\n%s", diff)
	}
}

// TestLesson20ReadyLater: a target that becomes ready after the Placement was made is used
// at the next look.
func TestLesson20ReadyLater(t *testing.T) {
	in, east, west := twoTargets()
	east.Ready, west.Ready = false, false
	west.LastHeartbeat = time.Time{}
	if diff := cmp.Diff([]string{}, desired(in)); diff != "" {
		t.Errorf("nobody is ready (-want +got):\n%s", diff)
	}
	west.Ready = true
	if diff := cmp.Diff([]string{"at west"}, desired(in)); diff != "" {
		t.Errorf("west is ready (-want +got):\n%s", diff)
	}
}
