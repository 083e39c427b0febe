package handover

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// aged adds an Assignment that is d older than those that scene.on adds.
func (c *scene) aged(d time.Duration) *scene {
	for _, a := range c.s.Assignments {
		a.CreationTimestamp.Time = a.CreationTimestamp.Add(-d)
	}
	return c
}

// TestBrokenApplication moves an application that does not run in full where it is.
func TestBrokenApplication(t *testing.T) {
	move := func(old, replacement int) *scene {
		return newScene().on("east").on("west").pods("east", old).pods("west", replacement).to("west", drained("east"))
	}
	const (
		goes = `
east: Draining [Draining] gateways are told to send nothing new here
west: [Syncing] Deployment "web": %d of 2 pods are available
east stage Draining`
		stays = `
east: [%s] waiting for the replacement: west at Location "default": Deployment "web": %d of 2 pods are available
west: [Syncing] Deployment "web": %d of 2 pods are available
east stage WaitingForPods`
	)
	tests := map[string]struct {
		scene *scene
		want  string
	}{
		"broken on both sides: it is waited for, but not for ever": {
			move(0, 0),
			`
east: [Syncing] waiting for the replacement: west at Location "default": Deployment "web": 0 of 2 pods are available (the present copy does no better, so it is waited for until 2030-01-01T00:02:01Z only)
west: [Syncing] Deployment "web": 0 of 2 pods are available
east stage WaitingForPods
next +2m1s`,
		},
		"then it goes":                   {move(0, 0).aged(Patience + time.Second), fmt.Sprintf(goes, 0)},
		"half of it works on both sides": {move(1, 1).aged(Patience + time.Second), fmt.Sprintf(goes, 1)},
		"the new side is better already": {move(0, 1).aged(Patience + time.Second), fmt.Sprintf(goes, 1)},
		"a copy with one pod more is never let go": {
			move(1, 0).aged(24 * time.Hour), fmt.Sprintf(stays, "Syncing", 0, 0),
		},
		"the last healthy copy is never let go": {
			move(2, 1).aged(24 * time.Hour), fmt.Sprintf(stays, "Serving", 1, 1),
		},
		"a copy that serves while its update is stuck": {
			move(2, 0).stuckUpdate("east").aged(24 * time.Hour), fmt.Sprintf(stays, "Syncing", 0, 0),
		},
		"nobody has spoken of the old side": {
			newScene().on("east").on("west").pods("west", 0).to("west", drained("east")).aged(24 * time.Hour), fmt.Sprintf(stays, "Syncing", 0, 0),
		},
		"nor of the new one": {
			newScene().on("east").on("west").pods("east", 0).to("west", drained("east")).aged(24 * time.Hour),
			`
east: [Syncing] waiting for the replacement: west at Location "default": Deployment "web" has not been applied yet
west: [Syncing] Deployment "web" has not been applied yet
east stage Applying`,
		},
		"the old side recovers while it drains: it gets its traffic back": {
			newScene().on("east", draining).on("west").pods("east", 2).pods("west", 0).to("west", drained("east")).aged(24 * time.Hour),
			`
east: Active [Serving] waiting for the replacement: west at Location "default": Deployment "web": 0 of 2 pods are available
west: [Syncing] Deployment "web": 0 of 2 pods are available
east stage WaitingForPods`,
		},
		"it has drained": {
			newScene().on("east", draining).on("west").pods("east", 0).pods("west", 0).to("west", drained("east")).aged(24 * time.Hour),
			`
west: [Syncing] Deployment "web": 0 of 2 pods are available
delete east
east stage Removing`,
		},
		"something else that the old side has is missing": {
			move(0, 0).pods("east", 0, of("services", "web")).aged(24 * time.Hour),
			`
east: [Syncing] waiting for the replacement: west at Location "default": services "web" has not been applied yet
west: [Syncing] services "web" has not been applied yet
east stage Applying`,
		},
		"no gateway reaches anything on either side": {
			move(0, 0).ingress().gateway("g", 9*time.Second, sends("east", 0), sends("west", 0)).aged(Patience + time.Second),
			fmt.Sprintf(goes, 0) + "\nnext +9s",
		},
		"a gateway reaches more on the old side": {
			move(1, 1).ingress().gateway("g", 9*time.Second, sends("east", 1), sends("west", 0)).aged(24 * time.Hour),
			fmt.Sprintf(stays, "Syncing", 1, 1) + "\nnext +9s",
		},
		"a gateway has not taken notice of the new side": {
			move(1, 1).ingress().gateway("g", 9*time.Second, sends("east", 1)).aged(24 * time.Hour),
			fmt.Sprintf(stays, "Syncing", 1, 1) + "\nnext +9s",
		},
		"a gateway in its grace": {
			move(1, 1).ingress().gateway("g", 9*time.Second, sends("east", 1), sends("west", 1)).gateway("h", -time.Second).aged(24 * time.Hour),
			fmt.Sprintf(stays, "Syncing", 1, 1) + "\nnext +9s",
		},
		"no gateway": {
			move(1, 1).ingress().aged(24 * time.Hour), fmt.Sprintf(stays, "Syncing", 1, 1),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := say(Plan(tc.scene.s, tc.scene.decision, Gates(tc.scene.s)))
			if diff := cmp.Diff(strings.TrimPrefix(tc.want, "\n"), got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// stuckUpdate makes the Deployment at a target have one pod of the present template, and
// the rest of an earlier one.
func (c *scene) stuckUpdate(target string) *scene {
	for _, r := range c.s.Reports {
		if r.Spec.Target == target {
			r.Report.Status.Raw = []byte(`{"replicas":3,"updatedReplicas":1,"availableReplicas":2}`)
		}
	}
	return c
}
