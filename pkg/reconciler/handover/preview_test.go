package handover

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/scheduling"
)

// TestForecast asks what a drain of east, which is not drained, would do.
func TestForecast(t *testing.T) {
	type change func(*scene, *scheduling.Input, *scheduling.Target)
	tests := map[string]struct {
		change change
		want   string
	}{
		"it moves": {
			func(*scene, *scheduling.Input, *scheduling.Target) {},
			"Moves to north at default: chosen: 1 namespace",
		},
		"what moved before it counts": {
			func(_ *scene, in *scheduling.Input, _ *scheduling.Target) {
				in.Namespaces = func(key string) int { return map[string]int{"west": 2, "north": 3}[key] }
			},
			"Moves to north at default: chosen: 4 namespaces",
		},
		"it moves already": {
			func(c *scene, in *scheduling.Input, _ *scheduling.Target) { c.on("west").pods("west", 1) },
			"Moves to west at default: it is there already",
		},
		"nothing can take over": {
			func(c *scene, _ *scheduling.Input, _ *scheduling.Target) {
				c.targets["west"].Unschedulable = true
				c.targets["north"].EvictAfter = now
			},
			`Blocked: no other target can take over: west at Location "default": it is cordoned; north at Location "default": it is drained since 2030-01-01T00:00:00Z`,
		},
		"forced, nothing can take over": {
			func(c *scene, _ *scheduling.Input, drained *scheduling.Target) {
				c.targets["west"].Unschedulable, c.targets["north"].Unschedulable = true, true
				drained.ForceEvict = true
			},
			`Ends: no target can take the namespace: east at Location "default": it is drained since 2029-12-31T23:59:59Z; west at Location "default": it is cordoned; north at Location "default": it is cordoned`,
		},
		"held": {
			func(_ *scene, in *scheduling.Input, _ *scheduling.Target) { in.Held = `Job "import" is running` },
			`Held: Job "import" is running`,
		},
		"held, but forced": {
			func(_ *scene, in *scheduling.Input, drained *scheduling.Target) {
				in.Held, drained.ForceEvict = `Job "import" is running`, true
			},
			"Moves to north at default: chosen: 1 namespace",
		},
		"no Placement": {
			func(_ *scene, in *scheduling.Input, _ *scheduling.Target) { in.Placement = nil },
			"Blocked: no Placement selects the namespace",
		},
		"nothing runs in it": {
			func(_ *scene, in *scheduling.Input, _ *scheduling.Target) { in.Empty = true },
			"Moves: nothing runs in it",
		},
		"it is on its way out": {
			func(c *scene, _ *scheduling.Input, _ *scheduling.Target) { deleting(c.s.Assignments[0]) },
			"Moves: it is leaving already",
		},
		"the namespace is": {
			func(c *scene, _ *scheduling.Input, _ *scheduling.Target) { c.namespaceDeleted() },
			"Moves: the namespace is being deleted",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newScene().on("east").pods("east", 2)
			c.targets["north"] = &scheduling.Target{Key: "north", Ready: true}
			drained := *c.targets["east"]
			drained.Unschedulable, drained.EvictAfter = true, now.Add(-time.Second)
			in := scheduling.Input{
				Cluster: "c", Namespace: "web", Placement: &schedulingv1alpha1.Placement{},
				Target: c.s.Target, Namespaces: func(string) int { return 0 }, Now: now,
			}
			tc.change(c, &in, &drained)
			in.Current = Currents(c.s, Gates(c.s))
			var targets []*scheduling.Target
			for _, key := range []string{"east", "west", "north"} {
				targets = append(targets, c.targets[key])
			}
			in.Locations = []*scheduling.Location{scheduling.NewLocation(&schedulingv1alpha1.Location{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, "root", targets, "")}
			f := forecast(whatIf(in, &drained, map[string]int{"north": 1, "west": 3}), c.s, "east")
			got := string(f.Result)
			if f.To != nil {
				got += fmt.Sprintf(" to %s at %s", f.To.Target, f.To.Location)
			}
			if diff := cmp.Diff(tc.want, got+": "+f.Message); diff != "" {
				t.Errorf("forecast (-want +got):\n%s", diff)
			}
			if !c.targets["east"].EvictAfter.IsZero() {
				t.Error("the target itself was changed")
			}
		})
	}
}
