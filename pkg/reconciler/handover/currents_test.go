package handover

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/13eedeaf/kcp/pkg/scheduling"
)

// TestCurrents pins that a target is not chosen again while a gateway still speaks of
// the namespace's earlier Assignment there: found by TestSimulation.
func TestCurrents(t *testing.T) {
	tests := map[string]struct {
		scene *scene
		want  []scheduling.Current
	}{
		"no Assignment, a live gateway knows one": {
			newScene().gateway("g", 9*time.Second, stopped("east", 4, 0)),
			[]scheduling.Current{{Target: "east", Deleting: true}},
		},
		"a gateway in its grace": {
			newScene().gateway("g", -time.Second, stopped("east", 4, 0)),
			[]scheduling.Current{{Target: "east", Deleting: true}},
		},
		"a gateway that is given up": {
			newScene().gateway("g", -GatewayGrace, stopped("east", 4, 0)),
			[]scheduling.Current{},
		},
		"the Assignment stands": {
			newScene().on("east", draining).gateway("g", 9*time.Second, stopped("east", 2, 0)),
			[]scheduling.Current{{Target: "east", Draining: true, Location: "default", Created: now}},
		},
		"two gateways": {
			newScene().on("west", deleting).gateway("g", 9*time.Second, stopped("east", 4, 0)).gateway("h", 9*time.Second, stopped("east", 4, 0)),
			[]scheduling.Current{{Target: "west", Deleting: true, Location: "default", Created: now}, {Target: "east", Deleting: true}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Currents(tc.scene.s, Gates(tc.scene.s))); diff != "" {
				t.Errorf("currents (-want +got):\n%s", diff)
			}
		})
	}
}
