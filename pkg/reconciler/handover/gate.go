package handover

import (
	"fmt"
	"slices"
	"time"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/scheduling"
	"github.com/13eedeaf/kcp/pkg/status"
)

// Gate says how far the copy of one Assignment is from doing its work.
type Gate struct {
	// Serving is true when it runs everything in full and the gateways confirm it.
	Serving bool
	// Stage and Message say what is waited for when it does not serve.
	Stage   string
	Message string
	// Out is true when some workload has not one pod there that works, or no gateway
	// reaches it; Idle when no workload has any.
	Out, Idle bool
	// Available counts the pods that work, for each workload of which the target has
	// spoken. Missing is true when the copy lacks something that an older one has.
	Available map[objectKey]int64
	Missing   bool
	// Next is when the answer may change by itself, zero for never.
	Next time.Time
}

// Gates evaluates every Assignment of the state, by target.
func Gates(s *State) map[string]Gate {
	reports := map[string]map[objectKey]*workloadv1alpha1.SyncReport{}
	for _, r := range s.Reports {
		if reports[r.Spec.Target] == nil {
			reports[r.Spec.Target] = map[objectKey]*workloadv1alpha1.SyncReport{}
		}
		reports[r.Spec.Target][reportKey(r)] = r
	}
	out := make(map[string]Gate, len(s.Assignments))
	for _, a := range s.Assignments {
		out[a.Name] = s.gate(a, reports)
	}
	return out
}

func (s *State) gate(a *schedulingv1alpha1.Assignment, reports map[string]map[objectKey]*workloadv1alpha1.SyncReport) Gate {
	g := s.workloadGate(reports[a.Name])
	if message := s.missing(a, reports); message != "" {
		g.Missing = true
		if g.Stage != StageApplying {
			g.Serving, g.Stage, g.Message = false, StageApplying, message
		}
	}
	if !s.HasIngress || !a.ServedByGateways() {
		return g
	}
	confirmed, message, healthy, next := s.confirmed(a)
	g.Next = next
	g.Out = g.Out || !healthy
	if g.Serving && !confirmed {
		g.Serving, g.Stage, g.Message = false, StageWaitingForGateway, message
	}
	return g
}

// workloadGate asks whether every workload runs in full by the reports of one target.
func (s *State) workloadGate(reports map[objectKey]*workloadv1alpha1.SyncReport) Gate {
	g := Gate{Serving: true, Idle: true, Available: map[objectKey]int64{}}
	waiting := 0
	for _, w := range s.Workloads {
		report := reports[workloadKey(w)]
		h := status.HealthOf(w.Object, report)
		if report != nil && report.Spec.UID == string(w.Object.GetUID()) {
			g.Available[workloadKey(w)] = h.Available
		}
		g.Out = g.Out || h.Out()
		g.Idle = g.Idle && h.Available == 0
		if h.Healthy {
			continue
		}
		g.Serving = false
		waiting++
		stage := StageWaitingForPods
		if !h.Applied {
			stage = StageApplying
		}
		// What is not applied comes first: pods may be waiting for it.
		if g.Stage == "" || g.Stage == StageWaitingForPods && stage == StageApplying {
			g.Stage, g.Message = stage, h.Message
		}
	}
	if waiting > 1 {
		g.Message += fmt.Sprintf(" (and %d more)", waiting-1)
	}
	return g
}

// missing names an object that another live copy has and this one has not: the
// replacement must have all that it is to replace. It returns "" when there is none.
func (s *State) missing(a *schedulingv1alpha1.Assignment, reports map[string]map[objectKey]*workloadv1alpha1.SyncReport) string {
	own := reports[a.Name]
	for _, other := range s.Assignments {
		target := s.Target(other.Name)
		if other.Name == a.Name || other.DeletionTimestamp != nil || target == nil || !target.Ready {
			continue
		}
		// Of two copies the older one is the measure: the younger may have been given
		// something that the older one cannot have.
		if !other.CreationTimestamp.Before(&a.CreationTimestamp) {
			continue
		}
		var first *workloadv1alpha1.SyncReport
		lacks := func(r *workloadv1alpha1.SyncReport) {
			if first == nil || r.Spec.Resource+"/"+r.Spec.Name < first.Spec.Resource+"/"+first.Spec.Name {
				first = r
			}
		}
		for key, theirs := range reports[other.Name] {
			if !theirs.Report.Synced {
				continue
			}
			if mine := own[key]; mine == nil || !mine.Report.Synced || mine.Spec.UID != theirs.Spec.UID {
				lacks(theirs)
			}
		}
		for key, mine := range own {
			// Where all is well there is no report of what has no status.
			if reports[other.Name][key] == nil && !mine.Report.Synced {
				lacks(mine)
			}
		}
		if first == nil {
			continue
		}
		if mine := own[reportKey(first)]; mine != nil && !mine.Report.Synced {
			return fmt.Sprintf("%s %q could not be applied: %s", first.Spec.Resource, first.Spec.Name, mine.Report.Message)
		}
		return fmt.Sprintf("%s %q has not been applied yet", first.Spec.Resource, first.Spec.Name)
	}
	return ""
}

// lease tells how a gateway counts.
type lease int

const (
	leaseLive    lease = iota // it has a say
	leaseInGrace              // it may still be sending traffic, and cannot be asked
	leaseGone                 // it is given up
)

// LeaseExpiry is when a gateway stops counting as live.
func LeaseExpiry(g *networkingv1alpha1.GatewayInstance) time.Time {
	return g.Spec.RenewTime.Add(duration(g))
}

func duration(g *networkingv1alpha1.GatewayInstance) time.Duration {
	return time.Duration(g.Spec.LeaseDurationSeconds) * time.Second
}

// leaseOf says how a gateway counts, and when that changes by itself.
func leaseOf(g *networkingv1alpha1.GatewayInstance, now time.Time) (lease, time.Time) {
	expiry := LeaseExpiry(g)
	switch {
	case now.Before(expiry):
		return leaseLive, expiry
	case now.Before(expiry.Add(GatewayGrace)):
		return leaseInGrace, expiry.Add(GatewayGrace)
	default:
		return leaseGone, time.Time{}
	}
}

func (s *State) gatewayEntry(gateway, target string) (networkingv1alpha1.GatewayTargetReport, bool) {
	for _, r := range s.GatewayReports {
		if r.Name != gateway {
			continue
		}
		for _, entry := range r.Spec.Targets {
			if entry.Target == target {
				return entry, true
			}
		}
	}
	return networkingv1alpha1.GatewayTargetReport{}, false
}

// confirmed asks whether every live gateway sends traffic to the Assignment's target and
// finds all backends healthy there. healthy is false when there are live gateways and
// none of them finds any.
func (s *State) confirmed(a *schedulingv1alpha1.Assignment) (ok bool, message string, healthy bool, next time.Time) {
	ok = true
	live := 0
	wait := func(format string, args ...any) {
		if ok {
			ok, message = false, fmt.Sprintf(format, args...)
		}
	}
	for _, g := range s.Gateways {
		state, until := leaseOf(g, s.Now)
		next = earlier(next, until)
		switch state {
		case leaseGone:
			continue
		case leaseInGrace:
			wait("gateway %q has not renewed its lease; it is waited for until %s", g.Name, until.UTC().Format(time.RFC3339))
			continue
		case leaseLive:
		}
		live++
		entry, found := s.gatewayEntry(g.Name, a.Name)
		healthy = healthy || entry.HealthyBackends > 0 || !s.HasEndpoints
		switch {
		case !found || entry.AssignmentGeneration < a.Generation:
			wait("gateway %q has not taken notice of the new place yet", g.Name)
		case entry.Backends == 0 && s.HasEndpoints:
			wait("gateway %q knows no backend of the namespace's Ingresses yet", g.Name)
		case entry.HealthyBackends < entry.Backends:
			wait("gateway %q reaches %d of %d backends", g.Name, entry.HealthyBackends, entry.Backends)
		case !entry.Accepting:
			wait("gateway %q sends nothing there yet", g.Name)
		}
	}
	if live == 0 {
		healthy = true
		wait("no gateway is live to confirm that traffic arrives")
	}
	return ok, message, healthy, next
}

// traffic says what gateways still send to a draining Assignment's target.
type traffic struct {
	// stopped is true when every gateway that may count has confirmed to send nothing
	// new there.
	stopped  bool
	message  string
	inFlight int64
	next     time.Time
}

func (s *State) trafficTo(a *schedulingv1alpha1.Assignment) traffic {
	t := traffic{stopped: true}
	if !s.HasIngress || !a.ServedByGateways() {
		return t
	}
	for _, g := range s.Gateways {
		state, until := leaseOf(g, s.Now)
		t.next = earlier(t.next, until)
		if state == leaseGone {
			continue
		}
		entry, found := s.gatewayEntry(g.Name, a.Name)
		t.inFlight += entry.InFlight
		if state == leaseLive && found && entry.AssignmentGeneration >= a.Generation && !entry.Accepting {
			continue
		}
		if t.stopped {
			t.message = fmt.Sprintf("gateway %q has not confirmed that it sends nothing new there", g.Name)
		}
		t.stopped = false
	}
	return t
}

// Currents returns what the scheduler is to know of the Assignments of a namespace.
//
// A target whose Assignment has gone is among them, as one that is still leaving, for as
// long as a gateway that may count speaks of it: a new Assignment there would bear the
// same name and begin with generation 1 again, and what the gateway said of the earlier
// one would pass for a confirmation of the new one.
func Currents(s *State, gates map[string]Gate) []scheduling.Current {
	out := make([]scheduling.Current, 0, len(s.Assignments))
	present := map[string]bool{}
	for _, a := range s.Assignments {
		present[a.Name] = true
		out = append(out, scheduling.Current{
			Target:   a.Name,
			Draining: a.Spec.State == schedulingv1alpha1.AssignmentDraining,
			Deleting: a.DeletionTimestamp != nil,
			Serving:  gates[a.Name].Serving,
			Created:  a.CreationTimestamp.Time,
			Location: a.Spec.Location,
		})
	}
	for _, r := range s.GatewayReports {
		if !s.counts(r.Name) {
			continue
		}
		for _, entry := range r.Spec.Targets {
			if !present[entry.Target] {
				present[entry.Target] = true
				out = append(out, scheduling.Current{Target: entry.Target, Deleting: true})
			}
		}
	}
	return out
}

// counts reports whether a gateway is live or in its grace.
func (s *State) counts(gateway string) bool {
	return slices.ContainsFunc(s.Gateways, func(g *networkingv1alpha1.GatewayInstance) bool {
		state, _ := leaseOf(g, s.Now)
		return g.Name == gateway && state != leaseGone
	})
}
