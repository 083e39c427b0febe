package handover

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/scheduling"
)

func (c *scene) plan() string { return say(Plan(c.s, c.decision, Gates(c.s))) }

// TestLesson12OneMechanism: whatever makes a namespace move, the old copy keeps its
// traffic until the new one serves, and then drains. Only a target that is gone, or is
// known to be dead, has nothing to drain; it too is kept until then.
func TestLesson12OneMechanism(t *testing.T) {
	for why, moves := range map[string][]scheduling.Move{
		"a drain":                       {{Target: "east", Reason: "the target is drained"}},
		"an edited Placement":           {{Target: "east", Reason: `no Location that Placement "default" selects contains the target any longer`}},
		"a SyncTarget that is deleted":  {{Target: "east", Reason: "the target is being deleted"}},
		"a decision without compulsion": nil,
		"failover":                      {{Target: "east", Reason: "silent", Dead: true}},
	} {
		c := newScene().on("east").on("west").pods("east", 2).pods("west", 1).to("west", moves...)
		want := `east: [Serving] waiting for the replacement: west at Location "default": Deployment "web": 1 of 2 pods are available
west: [Syncing] Deployment "web": 1 of 2 pods are available
east stage WaitingForPods`
		if diff := cmp.Diff(want, c.plan()); diff != "" {
			t.Errorf("%s, before the new copy serves (-want +got):\n%s", why, diff)
		}
		c.s.Reports = nil
		c.pods("east", 2).pods("west", 2)
		want = `east: Draining [Draining] gateways are told to send nothing new here
west: [Serving] 
east stage Draining`
		if len(moves) > 0 && moves[0].Dead {
			want = "west: [Serving] \ndelete east\neast stage Removing"
		}
		if diff := cmp.Diff(want, c.plan()); diff != "" {
			t.Errorf("%s, when it serves (-want +got):\n%s", why, diff)
		}
	}
}

// TestLesson15ScalingWhileSilent: what is asked of a cluster that is silent for a moment is
// queued there. Nothing is taken from it, and nothing is started elsewhere.
func TestLesson15ScalingWhileSilent(t *testing.T) {
	c := newScene().silentFor("east", time.Minute).on("east").pods("east", 2).to("east")
	web := c.s.Workloads[0].Object
	web.SetGeneration(2)
	if err := unstructured.SetNestedField(web.Object, int64(5), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	a := Plan(c.s, c.decision, Gates(c.s))
	if len(a.Create)+len(a.Delete)+len(a.Release) > 0 || slices.ContainsFunc(a.Update, func(u Update) bool { return u.SpecChanged }) {
		t.Errorf("scaling while the cluster is silent does more than wait:\n%s", say(a))
	}
}

// TestLesson23AMoveCostsTheSame: what the server writes for a move does not depend on how
// much is in the namespace.
func TestLesson23AMoveCostsTheSame(t *testing.T) {
	// move counts the writes of a whole move of so many Deployments.
	move := func(objects int) map[string]int {
		fill := func(c *scene, west int) *scene {
			c.s.Workloads = c.s.Workloads[:1]
			c.s.Reports = nil
			c.pods("east", 2)
			c.pods("west", west)
			for i := 1; i < objects; i++ {
				name := fmt.Sprintf("web-%d", i)
				w := c.s.Workloads[0]
				w.Object = w.Object.DeepCopy()
				w.Object.SetName(name)
				c.s.Workloads = append(c.s.Workloads, w)
				named := func(r *workloadv1alpha1.SyncReport) { r.Spec.Name = name }
				c.pods("east", 2, named)
				c.pods("west", west, named)
			}
			return c
		}
		east := drained("east")
		out := map[string]int{}
		for _, c := range []*scene{
			fill(newScene().on("east").to("west", east), 0),
			fill(newScene().on("east").on("west").to("west", east), 0),
			fill(newScene().on("east").on("west").to("west", east), 2),
			fill(newScene().on("east", draining).on("west").to("west", east), 2),
		} {
			a := Plan(c.s, c.decision, Gates(c.s))
			out["create"] += len(a.Create)
			out["delete"] += len(a.Delete)
			for _, u := range a.Update {
				if u.SpecChanged {
					out["spec"]++
				}
				if u.StatusChanged {
					out["status"]++
				}
			}
		}
		return out
	}
	one := move(1)
	if one["create"] != 1 || one["delete"] != 1 || one["spec"] != 1 {
		t.Fatalf("a move writes %v: it is not whole", one)
	}
	if diff := cmp.Diff(one, move(1000)); diff != "" {
		t.Errorf("a move of 1,000 Deployments writes (-one +1,000):\n%s", diff)
	}
}
