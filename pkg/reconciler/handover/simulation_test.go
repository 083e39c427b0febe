package handover

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/scheduling"
)

// TestSimulation plays an admin who cordons, drains and uncordons three targets at
// random, syncers and two gateways that are each late at random, and a controller that
// decides and plans in between. At every step, once the application serves, each gateway
// must have somewhere to send a request: a target in its own table with a pod that runs.
// When the admin rests, the namespace settles on one target that need not be left.
func TestSimulation(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newSimulation(t, seed)
			for range 400 {
				w.step(true)
			}
			for name := range w.targets {
				w.targets[name].EvictAfter, w.targets[name].Unschedulable = time.Time{}, false
			}
			w.targets["a"].EvictAfter = now
			for range 1000 {
				w.step(false)
			}
			if len(w.assignments) != 1 || w.assignments["a"] != nil {
				t.Errorf("it did not settle:\n%s", w.history())
			}
			for _, a := range w.assignments {
				if a.Status.Phase != schedulingv1alpha1.AssignmentServing || a.Spec.State != schedulingv1alpha1.AssignmentActive {
					t.Errorf("it settled on %+v", a)
				}
			}
		})
	}
}

type simulation struct {
	t           *testing.T
	random      *rand.Rand
	now         time.Time
	targets     map[string]*scheduling.Target
	assignments map[string]*schedulingv1alpha1.Assignment
	// pods are the running ones on each target, reported the ones that its syncer told.
	pods, reported map[string]int
	gateways       map[string]*simGateway
	served         bool
	log            []string
}

// simGateway is a gateway with the table in force and its last report.
type simGateway struct {
	table map[string]simRoute
	// known has the targets whose endpoints it has heard of.
	known  map[string]bool
	report []networkingv1alpha1.GatewayTargetReport
}

// simRoute is a gateway's view of one Assignment.
type simRoute struct {
	generation int64
	draining   bool
	inFlight   int64
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	w := &simulation{
		t: t, random: rand.New(rand.NewPCG(seed, 1)), now: now,
		targets:     map[string]*scheduling.Target{},
		assignments: map[string]*schedulingv1alpha1.Assignment{},
		pods:        map[string]int{}, reported: map[string]int{},
		gateways: map[string]*simGateway{"g": {}, "h": {}},
	}
	for _, name := range []string{"a", "b", "c"} {
		w.targets[name] = &scheduling.Target{Key: name, Ready: true}
	}
	return w
}

func (w *simulation) note(format string, args ...any) {
	w.log = append(w.log, w.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

func (w *simulation) history() string {
	return strings.Join(w.log[max(0, len(w.log)-40):], "\n")
}

// pick returns a key of m at random, the same for the same seed.
func pick[V any](w *simulation, m map[string]V) string {
	keys := slices.Sorted(maps.Keys(m))
	return keys[w.random.IntN(len(keys))]
}

func (w *simulation) step(admin bool) {
	w.now = w.now.Add(time.Second)
	switch n := w.random.IntN(20); {
	case n == 0 && admin:
		w.admin()
	case n < 6:
		w.control()
	case n < 13:
		w.sync(pick(w, w.targets))
	default:
		w.route(w.gateways[pick(w, w.gateways)])
	}
	w.check()
}

func (w *simulation) admin() {
	t := w.targets[pick(w, w.targets)]
	switch w.random.IntN(3) {
	case 0:
		t.Unschedulable = true
		w.note("cordon %s", t.Key)
	case 1:
		t.EvictAfter = w.now
		w.note("drain %s", t.Key)
	case 2:
		t.Unschedulable, t.EvictAfter = false, time.Time{}
		w.note("uncordon %s", t.Key)
	}
}

// sync is one step of a target's syncer: a pod starts, or is reported, or the copy goes.
func (w *simulation) sync(name string) {
	a := w.assignments[name]
	switch {
	case a == nil:
		w.pods[name] = 0
		delete(w.reported, name)
	case a.DeletionTimestamp != nil && w.pods[name] > 0:
		w.pods[name] = 0
	case a.DeletionTimestamp != nil:
		delete(w.assignments, name)
		delete(w.reported, name)
		w.note("%s is gone", name)
	case w.pods[name] < 2:
		w.pods[name]++
	default:
		w.reported[name] = w.pods[name]
	}
}

// route is one step of a gateway: it takes notice of the Assignments, or of
// endpoints, or ends requests, or reports.
func (w *simulation) route(g *simGateway) {
	switch w.random.IntN(4) {
	case 0:
		table := map[string]simRoute{}
		for name, a := range w.assignments {
			// A copy that is going is no place to send anything.
			if a.DeletionTimestamp == nil {
				draining := a.Spec.State == schedulingv1alpha1.AssignmentDraining
				table[name] = simRoute{a.Generation, draining, g.table[name].inFlight}
			}
		}
		g.table = table
	case 1:
		for name, r := range g.table {
			r.inFlight = 0
			if !r.draining && g.known[name] && w.pods[name] > 0 {
				r.inFlight = 2
			}
			g.table[name] = r
		}
	case 2:
		g.known = map[string]bool{}
		for name, n := range w.pods {
			g.known[name] = n > 0
		}
	case 3:
		g.report = nil
		for _, name := range slices.Sorted(maps.Keys(g.table)) {
			r := g.table[name]
			healthy := int32(0)
			if g.known[name] && w.pods[name] > 0 {
				healthy = 1
			}
			g.report = append(g.report, networkingv1alpha1.GatewayTargetReport{
				Target: name, AssignmentGeneration: r.generation, Accepting: !r.draining, Backends: 1, HealthyBackends: healthy, InFlight: r.inFlight,
			})
		}
	}
}

// control is one run of the controller.
func (w *simulation) control() {
	s := w.state()
	gates := Gates(s)
	in := scheduling.Input{
		Cluster: "c", Namespace: "web", Placement: &schedulingv1alpha1.Placement{}, Target: s.Target,
		Namespaces: func(string) int { return 0 }, Now: w.now,
	}
	var targets []*scheduling.Target
	for _, name := range slices.Sorted(maps.Keys(w.targets)) {
		targets = append(targets, w.targets[name])
	}
	in.Locations = []*scheduling.Location{scheduling.NewLocation(&schedulingv1alpha1.Location{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, "root", targets, "")}
	in.Current = Currents(s, gates)
	actions := Plan(s, scheduling.Decide(in), gates)
	for _, a := range actions.Create {
		a.Generation, a.CreationTimestamp = 1, metav1.NewTime(w.now)
		w.assignments[a.Name] = a
		w.note("create %s", a.Name)
	}
	for _, u := range actions.Update {
		if u.SpecChanged {
			u.Assignment.Generation++
			w.note("%s is %s", u.Assignment.Name, u.Assignment.Spec.State)
		}
		w.served = w.served || u.Assignment.Status.Phase == schedulingv1alpha1.AssignmentServing
		w.assignments[u.Assignment.Name] = u.Assignment
	}
	for _, a := range actions.Delete {
		going := a.DeepCopy()
		going.DeletionTimestamp = new(metav1.NewTime(w.now))
		w.assignments[a.Name] = going
		w.note("delete %s", a.Name)
	}
}

func (w *simulation) state() *State {
	c := newScene().ingress()
	c.s.Now, c.s.DrainDeadline = w.now, time.Hour
	c.targets = w.targets
	for _, name := range slices.Sorted(maps.Keys(w.assignments)) {
		c.s.Assignments = append(c.s.Assignments, w.assignments[name])
		if n, ok := w.reported[name]; ok {
			c.pods(name, n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.gateways)) {
		c.gateway(name, 0, w.gateways[name].report...)
		c.s.Gateways[len(c.s.Gateways)-1].Spec.RenewTime = metav1.NewMicroTime(w.now)
	}
	return c.s
}

// check is the promise: every gateway has somewhere to send a request, and requests in
// flight are not cut.
func (w *simulation) check() {
	if !w.served {
		return
	}
	for name, g := range w.gateways {
		somewhere := false
		for target, r := range g.table {
			somewhere = somewhere || !r.draining && g.known[target] && w.pods[target] > 0
			if r.inFlight > 0 && w.pods[target] == 0 {
				w.t.Fatalf("gateway %s: requests in flight to %s were cut:\n%s", name, target, w.history())
			}
		}
		if !somewhere {
			w.t.Fatalf("gateway %s has nowhere to send a request:\n%s", name, w.history())
		}
	}
}
