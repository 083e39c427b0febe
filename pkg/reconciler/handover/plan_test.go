package handover

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/scheduling"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func TestPlan(t *testing.T) {
	tests := map[string]struct {
		scene *scene
		want  string
	}{
		"first placement": {
			newScene().to("east"),
			"create east",
		},
		"it waits for pods": {
			newScene().on("east").pods("east", 1).to("east"),
			`east: [Syncing] Deployment "web": 1 of 2 pods are available`,
		},
		"it serves": {
			newScene().on("east").pods("east", 2).to("east"),
			"east: [Serving] ",
		},
		"Lesson03 make before break": {
			newScene().on("east").pods("east", 2).to("west", drained("east")),
			`
create west
east: [Serving] waiting for the replacement: west at Location "default" is being assigned
east stage Pending`,
		},
		"the new side is being applied": {
			newScene().on("east").on("west").pods("east", 2).to("west", drained("east")),
			`
east: [Serving] waiting for the replacement: west at Location "default": Deployment "web" has not been applied yet
west: [Syncing] Deployment "web" has not been applied yet
east stage Applying`,
		},
		"Lesson06 pods of the new side are not ready": {
			newScene().on("east").on("west").pods("east", 2).pods("west", 1).to("west", drained("east")),
			`
east: [Serving] waiting for the replacement: west at Location "default": Deployment "web": 1 of 2 pods are available
west: [Syncing] Deployment "web": 1 of 2 pods are available
east stage WaitingForPods`,
		},
		"something that the old side has is missing": {
			newScene().on("east").on("west").pods("east", 2).pods("west", 2).pods("east", 0, of("services", "web")).to("west", drained("east")),
			`
east: [Serving] waiting for the replacement: west at Location "default": services "web" has not been applied yet
west: [Syncing] services "web" has not been applied yet
east stage Applying`,
		},
		"something that the old side has no need to report was refused on the new side": {
			newScene().on("east").on("west").pods("east", 2).pods("west", 2).pods("west", 0, of("secrets", "key"), refused).to("west", drained("east")),
			`
east: [Serving] waiting for the replacement: west at Location "default": secrets "key" could not be applied: no
west: [Syncing] secrets "key" could not be applied: no
east stage Applying`,
		},
		"something was refused on the new side": {
			newScene().on("east").on("west").pods("east", 2).pods("west", 2).pods("east", 0, of("services", "web")).pods("west", 0, of("services", "web"), refused).to("west", drained("east")),
			`
east: [Serving] waiting for the replacement: west at Location "default": services "web" could not be applied: no
west: [Syncing] services "web" could not be applied: no
east stage Applying`,
		},
		"something is refused on both sides": {
			newScene().on("east").on("west").pods("east", 2).pods("west", 2).pods("east", 0, of("services", "web"), refused).pods("west", 0, of("services", "web"), refused).to("west", drained("east")),
			`
east: Draining [Draining] gateways are told to send nothing new here
west: [Serving] 
east stage Draining`,
		},
		"no gateway confirms nothing": {
			newScene().ingress().on("east").on("west").pods("east", 2).pods("west", 2).to("west", drained("east")),
			`
east: [Syncing] waiting for the replacement: west at Location "default": no gateway is live to confirm that traffic arrives
west: [Syncing] no gateway is live to confirm that traffic arrives
east stage WaitingForGateway`,
		},
		"a gateway has not taken notice": {
			newScene().ingress().on("east").on("west").pods("east", 2).pods("west", 2).gateway("g", 9*time.Second, sends("east", 2)).to("west", drained("east")),
			`
east: [Serving] waiting for the replacement: west at Location "default": gateway "g" has not taken notice of the new place yet
west: [Syncing] gateway "g" has not taken notice of the new place yet
east stage WaitingForGateway
next +9s`,
		},
		"a gateway reaches some backends": {
			newScene().ingress().on("east").on("west").pods("east", 2).pods("west", 2).gateway("g", 9*time.Second, sends("east", 2), sends("west", 1)).to("west", drained("east")),
			`
east: [Serving] waiting for the replacement: west at Location "default": gateway "g" reaches 1 of 2 backends
west: [Syncing] gateway "g" reaches 1 of 2 backends
east stage WaitingForGateway
next +9s`,
		},
		"one of two gateways has confirmed": {
			newScene().ingress().on("east").on("west").pods("east", 2).pods("west", 2).gateway("g", 9*time.Second, sends("east", 2), sends("west", 2)).gateway("h", 8*time.Second, sends("east", 2)).to("west", drained("east")),
			`
east: [Serving] waiting for the replacement: west at Location "default": gateway "h" has not taken notice of the new place yet
west: [Syncing] gateway "h" has not taken notice of the new place yet
east stage WaitingForGateway
next +8s`,
		},
		"a gateway whose lease ran out blocks in its grace": {
			newScene().ingress().on("east").on("west").pods("east", 2).pods("west", 2).gateway("g", 9*time.Second, sends("east", 2), sends("west", 2)).gateway("h", -time.Second, sends("east", 2), sends("west", 2)).to("west", drained("east")),
			`
east: [Syncing] waiting for the replacement: west at Location "default": gateway "h" has not renewed its lease; it is waited for until 2030-01-01T00:00:29Z
west: [Syncing] gateway "h" has not renewed its lease; it is waited for until 2030-01-01T00:00:29Z
east stage WaitingForGateway
next +9s`,
		},
		"after its grace it does not": {
			newScene().ingress().on("east").on("west").pods("east", 2).pods("west", 2).gateway("g", 9*time.Second, sends("east", 2), sends("west", 2)).gateway("h", -GatewayGrace).to("west", drained("east")),
			`
east: Draining [Draining] gateways are told to send nothing new here
west: [Serving] 
east stage Draining
next +9s`,
		},
		"an Ingress with nothing behind it holds nothing up": {
			func() *scene {
				c := newScene().ingress().on("east").on("west").pods("east", 2).pods("west", 2)
				c.s.HasEndpoints = false
				none := networkingv1alpha1.GatewayTargetReport{Target: "west", AssignmentGeneration: 1, Accepting: true}
				return c.gateway("g", 9*time.Second, none).to("west", drained("east"))
			}(),
			`
east: Draining [Draining] gateways are told to send nothing new here
west: [Serving] 
east stage Draining
next +9s`,
		},
		"Lesson08 the old side drains until the gateway has switched, deadline or not": {
			newScene().ingress().on("east", draining, deadline(-time.Hour)).on("west").pods("east", 2).pods("west", 2).gateway("g", 9*time.Second, sends("east", 2), sends("west", 2)).to("west", drained("east")),
			`
east: [Draining] gateway "g" has not confirmed that it sends nothing new there
west: [Serving] 
east stage Draining
next +9s`,
		},
		"a confirmation of an older generation does not count": {
			newScene().ingress().on("east", draining).on("west").pods("east", 2).pods("west", 2).gateway("g", 9*time.Second, stopped("east", 1, 0), sends("west", 2)).to("west", drained("east")),
			`
east: [Draining] gateway "g" has not confirmed that it sends nothing new there
west: [Serving] 
east stage Draining
next +9s`,
		},
		"Lesson09 something is in flight, the clock starts at the observed switch": {
			newScene().ingress().on("east", draining).on("west").pods("east", 2).pods("west", 2).gateway("g", 9*time.Second, stopped("east", 2, 3), sends("west", 2)).to("west", drained("east")),
			`
east: Draining until +1m0s [Draining] 3 in flight, waited for until 2030-01-01T00:01:00Z
west: [Serving] 
east stage Draining
next +9s`,
		},
		"a gateway in its grace may still be sending": {
			newScene().ingress().on("east", draining).on("west").pods("east", 2).pods("west", 2).gateway("g", 9*time.Second, stopped("east", 2, 0), sends("west", 2)).gateway("h", -time.Second, stopped("east", 2, 0)).to("west", drained("east")),
			`
east: [Draining] waiting for the replacement: west at Location "default": gateway "h" has not renewed its lease; it is waited for until 2030-01-01T00:00:29Z
west: [Syncing] gateway "h" has not renewed its lease; it is waited for until 2030-01-01T00:00:29Z
east stage WaitingForGateway
next +9s`,
		},
		"also where it is forced to nowhere": {
			newScene().ingress().on("east", draining).pods("east", 2).gateway("h", -time.Second, stopped("east", 2, 0)).nowhere(scheduling.Move{Target: "east", Reason: "drained", Force: true}),
			`
east: [Draining] gateway "h" has not confirmed that it sends nothing new there
east stage Draining
next +29s`,
		},
		"still in flight": {
			newScene().ingress().on("east", draining, deadline(5*time.Second)).on("west").pods("east", 2).pods("west", 2).gateway("g", 9*time.Second, stopped("east", 3, 1), sends("west", 2)).to("west", drained("east")),
			`
east: [Draining] 1 in flight, waited for until 2030-01-01T00:00:05Z
west: [Serving] 
east stage Draining
next +5s`,
		},
		"the deadline has passed": {
			newScene().ingress().on("east", draining, deadline(0)).on("west").pods("east", 2).pods("west", 2).gateway("g", 9*time.Second, stopped("east", 3, 1), sends("west", 2)).to("west", drained("east")),
			`
west: [Serving] 
delete east
east stage Removing
next +9s`,
		},
		"nothing is in flight": {
			newScene().ingress().on("east", draining).on("west").pods("east", 2).pods("west", 2).gateway("g", 9*time.Second, stopped("east", 2, 0), sends("west", 2)).to("west", drained("east")),
			`
west: [Serving] 
delete east
east stage Removing
next +9s`,
		},
		"Lesson05 the deadline never takes the last healthy copy": {
			newScene().on("east", draining, deadline(-time.Hour)).on("west").pods("east", 2).pods("west", 1).to("west", drained("east")),
			`
east: [Draining] waiting for the replacement: west at Location "default": Deployment "web": 1 of 2 pods are available
west: [Syncing] Deployment "web": 1 of 2 pods are available
east stage WaitingForPods`,
		},
		"the new side is out: the old side gets traffic again": {
			newScene().on("east", draining, deadline(-time.Hour)).on("west").pods("east", 2).pods("west", 0).to("west", drained("east")),
			`
east: Active [Serving] waiting for the replacement: west at Location "default": Deployment "web": 0 of 2 pods are available
west: [Syncing] Deployment "web": 0 of 2 pods are available
east stage WaitingForPods`,
		},
		"Lesson04 nothing can take over": {
			newScene().on("east").pods("east", 2).to("east", drained("east")).blocked("no other target can take over: west: cordoned"),
			`
east: [Serving] drained, but it stays: no other target can take over: west: cordoned
east stage Blocked`,
		},
		"nothing can take over half way: traffic goes back": {
			newScene().on("east", draining).on("west").pods("east", 2).pods("west", 0).to("east", drained("east"), drained("west")).blocked("no other target"),
			`
east: Active [Serving] drained, but it stays: no other target
west: [Syncing] waiting for the replacement: east at Location "default" is being assigned
east stage Blocked
west stage Pending`,
		},
		"Lesson10 uncordon calls off what has not moved": {
			newScene().on("east").on("west").pods("east", 2).pods("west", 1).to("east"),
			`
east: [Serving] 
west: Draining [Draining] gateways are told to send nothing new here
west stage Draining`,
		},
		"called off while the application is broken: what never ran may go": {
			newScene().on("east").on("west").pods("east", 0).pods("west", 0).to("east"),
			`
east: [Syncing] Deployment "web": 0 of 2 pods are available
west: Draining [Draining] gateways are told to send nothing new here
west stage Draining`,
		},
		"an empty decision takes nothing": {
			newScene().on("east").pods("east", 2).nowhere(drained("east")),
			`
east: [Serving] waiting for the replacement: no target
east stage Blocked`,
		},
		"forced to nowhere": {
			newScene().on("east").pods("east", 2).nowhere(scheduling.Move{Target: "east", Reason: "drained", Force: true}),
			`
east: Draining [Draining] gateways are told to send nothing new here
east stage Draining`,
		},
		"forced, but there is another place: make before break": {
			newScene().on("east").on("west").pods("east", 2).pods("west", 1).to("west", scheduling.Move{Target: "east", Reason: "drained", Force: true}),
			`
east: [Serving] waiting for the replacement: west at Location "default": Deployment "web": 1 of 2 pods are available
west: [Syncing] Deployment "web": 1 of 2 pods are available
east stage WaitingForPods`,
		},
		"Lesson13 a dead target keeps its copy until the replacement serves": {
			newScene().silent("east").on("east").on("west").pods("east", 2).pods("west", 1).to("west", scheduling.Move{Target: "east", Reason: "silent", Dead: true}),
			`
east: [Serving] waiting for the replacement: west at Location "default": Deployment "web": 1 of 2 pods are available
west: [Syncing] Deployment "web": 1 of 2 pods are available
east stage WaitingForPods`,
		},
		"then it is let go without draining": {
			newScene().silent("east").on("east").on("west").pods("east", 2).pods("west", 2).to("west", scheduling.Move{Target: "east", Reason: "silent", Dead: true}),
			`
west: [Serving] 
delete east
east stage Removing`,
		},
		"Lesson16 its finalizer fences its return": {
			newScene().silent("east").on("east", deleting).on("west").pods("west", 2).to("west"),
			`
east: [Removing] the target is silent; its copy is removed when it returns
west: [Serving] 
east stage Removing`,
		},
		"the syncer is at work": {
			newScene().on("east", deleting).on("west").pods("west", 2).to("west"),
			`
east: [Removing] waiting for the target to remove its copy
west: [Serving] 
east stage Removing`,
		},
		"Lesson17 nobody waits for a target that is gone": {
			newScene().gone("east").on("east", deleting).on("west").pods("west", 2).to("west"),
			`
west: [Serving] 
release east`,
		},
		"nor for a silent one that is being deleted": {
			newScene().silent("east").writtenOff("east").on("east", deleting).on("west").pods("west", 2).to("west"),
			`
west: [Serving] 
release east`,
		},
		"which takes as long as silence is tolerated": {
			newScene().silentFor("east", time.Minute).writtenOff("east").on("east", deleting).on("west").pods("west", 2).to("west"),
			`
east: [Removing] the target is silent; its copy is removed when it returns
west: [Serving] 
east stage Removing
next +4m0s`,
		},
		"or less, if the Placement tolerates less": {
			newScene().tolerates(20*time.Second).silentFor("east", time.Minute).writtenOff("east").on("east", deleting).on("west").pods("west", 2).to("west"),
			`
west: [Serving] 
release east`,
		},
		"but not more": {
			newScene().tolerates(time.Hour).silentFor("east", 6*time.Minute).writtenOff("east").on("east", deleting).on("west").pods("west", 2).to("west"),
			`
west: [Serving] 
release east`,
		},
		"but for one that is heard": {
			newScene().writtenOff("east").on("east", deleting).on("west").pods("west", 2).to("west"),
			`
east: [Removing] waiting for the target to remove its copy
west: [Serving] 
east stage Removing`,
		},
		"a gone target's traffic goes on until the replacement serves": {
			newScene().gone("east").on("east").on("west").pods("west", 1).to("west", scheduling.Move{Target: "east", Reason: "gone", Gone: true, Force: true}),
			`
east: [Syncing] waiting for the replacement: west at Location "default": Deployment "web": 1 of 2 pods are available
west: [Syncing] Deployment "web": 1 of 2 pods are available
east stage WaitingForPods`,
		},
		"a namespace that is being deleted gets no new place": {
			newScene().namespaceDeleted().on("east", deleting).to("west"),
			`
east: [Removing] waiting for the target to remove its copy
east stage Removing`,
		},
		"and does not hang on a silent target": {
			newScene().silent("east").namespaceDeleted().on("east", deleting).to("west"),
			"release east",
		},
		"timers of the decision": {
			func() *scene {
				c := newScene().on("east").pods("east", 2).to("east")
				c.decision.NextDecision = now.Add(time.Hour)
				return c
			}(),
			`
east: [Serving] 
next +1h0m0s`,
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

// TestPlanSkipsWrites plans again after its own updates were written: nothing is left to
// write.
func TestPlanSkipsWrites(t *testing.T) {
	c := newScene().ingress().on("east", draining).on("west").pods("east", 2).pods("west", 2).
		gateway("g", 9*time.Second, stopped("east", 2, 3), sends("west", 2)).to("west", drained("east"))
	first := Plan(c.s, c.decision, Gates(c.s))
	if len(first.Update) != 2 {
		t.Fatalf("updates = %d, want 2", len(first.Update))
	}
	for _, u := range first.Update {
		for i, a := range c.s.Assignments {
			if a.Name == u.Assignment.Name {
				c.s.Assignments[i] = u.Assignment
			}
		}
	}
	if second := Plan(c.s, c.decision, Gates(c.s)); len(second.Update) != 0 {
		t.Errorf("the second plan writes again: %s", say(second))
	}
}
