package handover

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/scheduling"
)

// Actions is what a plan asks to be done.
type Actions struct {
	// Create has new Assignments. Update has copies of present ones with a changed spec
	// or status or both; SpecChanged and StatusChanged tell which.
	Create []*schedulingv1alpha1.Assignment
	Update []Update
	Delete []*schedulingv1alpha1.Assignment
	// Release has Assignments from which the server itself takes the syncer's finalizer,
	// because no syncer will.
	Release []*schedulingv1alpha1.Assignment
	// Stages has, for every target that the namespace has to leave, how far that is.
	Stages map[string]Stage
	// Settled is true when only a change of this namespace's own objects, its Placement,
	// its Locations or its targets asks for another plan.
	Settled bool
	// Next is when to plan again by itself, zero for never.
	Next time.Time
}

// Update is a change of one Assignment.
type Update struct {
	Assignment                 *schedulingv1alpha1.Assignment
	SpecChanged, StatusChanged bool
}

// Plan says what brings the Assignments of a namespace closer to the decision.
func Plan(s *State, decision scheduling.Result, gates map[string]Gate) Actions {
	p := &plan{State: s, decision: decision, gates: gates}
	p.out.Stages = map[string]Stage{}
	p.out.Next = decision.NextDecision
	p.out.Settled = decision.Blocked == "" && len(s.Assignments) <= 1
	assignments := slices.SortedFunc(slices.Values(s.Assignments), func(a, b *schedulingv1alpha1.Assignment) int {
		return cmp.Compare(a.Name, b.Name)
	})
	p.create(assignments)
	for _, g := range s.Gateways {
		// What a gateway in its grace holds up, here or in the decision, goes on then.
		if state, until := leaseOf(g, s.Now); state == leaseInGrace {
			p.next(until)
		}
	}
	for _, a := range assignments {
		p.next(gates[a.Name].Next)
		switch {
		case a.DeletionTimestamp != nil:
			p.removing(a)
		case s.Deleting:
			// Everything in the namespace is being deleted, this included.
		case decision.Desires(a.Name):
			p.staying(a)
		default:
			p.leaving(a)
		}
	}
	return p.out
}

// plan is one Plan under way.
type plan struct {
	*State
	decision scheduling.Result
	gates    map[string]Gate
	out      Actions
}

func (p *plan) next(t time.Time) { p.out.Next = earlier(p.out.Next, t) }

func (p *plan) create(present []*schedulingv1alpha1.Assignment) {
	if p.Deleting {
		return
	}
	for _, d := range p.decision.Desired {
		if slices.ContainsFunc(present, func(a *schedulingv1alpha1.Assignment) bool { return a.Name == d.Target }) {
			continue
		}
		reason := d.Reason
		for _, m := range p.decision.Moves {
			reason += fmt.Sprintf("; it replaces %s: %s", m.Target, m.Reason)
			p.out.Stages[m.Target] = Stage{StagePending, m.Reason}
		}
		p.out.Settled = false
		p.out.Create = append(p.out.Create, &schedulingv1alpha1.Assignment{
			ObjectMeta: metav1.ObjectMeta{Name: d.Target, Finalizers: []string{workloadv1alpha1.SyncerFinalizer}},
			Spec: schedulingv1alpha1.AssignmentSpec{
				Location: d.Location, LocationPath: d.LocationPath, Target: d.Target,
				Placement: p.Placement, State: schedulingv1alpha1.AssignmentActive, Reason: reason,
			},
		})
	}
}

// staying handles an Assignment where the namespace belongs.
func (p *plan) staying(a *schedulingv1alpha1.Assignment) {
	updated := a.DeepCopy()
	if a.Spec.State == schedulingv1alpha1.AssignmentDraining {
		activate(updated, "it stays after all")
	}
	for _, d := range p.decision.Desired {
		if d.Target == a.Name && d.Location != "" && p.Placement != "" {
			updated.Spec.Location, updated.Spec.LocationPath, updated.Spec.Placement = d.Location, d.LocationPath, p.Placement
		}
	}
	gate := p.gates[a.Name]
	phase, message := schedulingv1alpha1.AssignmentServing, ""
	if !gate.Serving {
		phase, message = schedulingv1alpha1.AssignmentSyncing, gate.Message
	}
	if move, forced := p.decision.Move(a.Name); forced {
		blocked := p.decision.Blocked
		p.out.Stages[a.Name] = Stage{StageBlocked, blocked}
		message = fmt.Sprintf("%s, but it stays: %s", move.Reason, blocked)
	}
	p.out.Settled = p.out.Settled && gate.Serving
	p.update(a, updated, phase, message, 0)
}

func activate(a *schedulingv1alpha1.Assignment, reason string) {
	a.Spec.State = schedulingv1alpha1.AssignmentActive
	a.Spec.DrainingSince, a.Spec.DrainDeadline = nil, nil
	a.Spec.Reason = reason
}

// leaving handles an Assignment where the namespace no longer belongs.
func (p *plan) leaving(a *schedulingv1alpha1.Assignment) {
	move, forced := p.decision.Move(a.Name)
	reason := "the namespace no longer belongs here"
	if forced {
		reason = move.Reason
	}
	waiting := p.replacements(a)
	abandoned := len(p.decision.Desired) == 0 && move.Force
	// What is called off before it ran anything takes nothing with it.
	calledOff := !forced && len(p.decision.Desired) > 0 && p.gates[a.Name].Idle
	switch {
	case waiting != nil && !abandoned && !calledOff:
		p.wait(a, waiting)
	case move.Dead || move.Gone:
		p.delete(a, reason)
	case a.Spec.State != schedulingv1alpha1.AssignmentDraining:
		updated := a.DeepCopy()
		updated.Spec.State = schedulingv1alpha1.AssignmentDraining
		since := metav1.NewMicroTime(p.Now)
		updated.Spec.DrainingSince = &since
		updated.Spec.Reason = reason
		message := "gateways are told to send nothing new here"
		p.out.Stages[a.Name] = Stage{StageDraining, message}
		p.update(a, updated, schedulingv1alpha1.AssignmentPhaseDraining, message, p.trafficTo(a).inFlight)
	default:
		p.drain(a, reason)
	}
}

// awaited is what a replacement still lacks.
type awaited struct {
	Stage
	// out is true when it does not work at all.
	out bool
	// until is when it need do no better, zero for never.
	until time.Time
}

// replacements says what is still missing from the desired targets until they can replace
// old, nil when nothing is. No desired target replaces nothing.
func (p *plan) replacements(old *schedulingv1alpha1.Assignment) *awaited {
	if len(p.decision.Desired) == 0 {
		return &awaited{Stage: Stage{StageBlocked, p.decision.Blocked}, out: true}
	}
	for _, d := range p.decision.Desired {
		i := slices.IndexFunc(p.Assignments, func(a *schedulingv1alpha1.Assignment) bool {
			return a.Name == d.Target && a.DeletionTimestamp == nil && a.Spec.State == schedulingv1alpha1.AssignmentActive
		})
		if i < 0 {
			return &awaited{Stage: Stage{StagePending, fmt.Sprintf("%s at Location %q is being assigned", d.Target, d.Location)}, out: true}
		}
		gate := p.gates[d.Target]
		if gate.Serving {
			continue
		}
		w := &awaited{Stage: Stage{gate.Stage, fmt.Sprintf("%s at Location %q: %s", d.Target, d.Location, gate.Message)}, out: gate.Out}
		if p.noWorse(old, p.Assignments[i]) {
			until := p.Assignments[i].CreationTimestamp.Add(Patience)
			if !until.After(p.Now) {
				continue
			}
			w.until = until
			w.Message += fmt.Sprintf(" (the present copy does no better, so it is waited for until %s only)", until.UTC().Format(time.RFC3339))
		}
		return w
	}
	return nil
}

// wait leaves an Assignment as it is until its replacement serves, and gives it traffic
// again if it was draining for a replacement that does not work.
func (p *plan) wait(a *schedulingv1alpha1.Assignment, replacement *awaited) {
	p.out.Stages[a.Name] = replacement.Stage
	p.next(replacement.until)
	updated := a.DeepCopy()
	if a.Spec.State == schedulingv1alpha1.AssignmentDraining && replacement.out {
		activate(updated, "the replacement does not work: "+replacement.Message)
	}
	phase := schedulingv1alpha1.AssignmentServing
	switch {
	case updated.Spec.State == schedulingv1alpha1.AssignmentDraining:
		phase = schedulingv1alpha1.AssignmentPhaseDraining
	case !p.gates[a.Name].Serving:
		phase = schedulingv1alpha1.AssignmentSyncing
	}
	p.update(a, updated, phase, "waiting for the replacement: "+replacement.Message, p.trafficTo(a).inFlight)
}

// drain lets a draining Assignment go once its traffic has ended or its deadline passed.
func (p *plan) drain(a *schedulingv1alpha1.Assignment, reason string) {
	t := p.trafficTo(a)
	p.next(t.next)
	updated := a.DeepCopy()
	var message string
	switch {
	case !t.stopped:
		message = t.message
	case t.inFlight == 0:
		p.delete(a, reason)
		return
	case a.Spec.DrainDeadline == nil:
		// The clock starts here: at the observed switch of the last gateway.
		until := metav1.NewMicroTime(p.Now.Add(p.DrainDeadline))
		updated.Spec.DrainDeadline = &until
		p.next(until.Time)
		message = inFlight(t.inFlight, until.Time)
	case p.Now.Before(p.deadlineOf(a)):
		p.next(p.deadlineOf(a))
		message = inFlight(t.inFlight, p.deadlineOf(a))
	default:
		p.delete(a, reason)
		return
	}
	p.out.Stages[a.Name] = Stage{StageDraining, message}
	p.update(a, updated, schedulingv1alpha1.AssignmentPhaseDraining, message, t.inFlight)
}

func inFlight(n int64, until time.Time) string {
	return fmt.Sprintf("%d in flight, waited for until %s", n, until.UTC().Format(time.RFC3339))
}

func (p *plan) delete(a *schedulingv1alpha1.Assignment, reason string) {
	p.out.Stages[a.Name] = Stage{StageRemoving, reason}
	p.out.Settled = false
	p.out.Delete = append(p.out.Delete, a)
}

// removing handles an Assignment that is waiting for its target to remove the copy.
func (p *plan) removing(a *schedulingv1alpha1.Assignment) {
	message := "waiting for the target to remove its copy"
	target := p.Target(a.Name)
	switch {
	case target == nil:
		p.out.Release = append(p.out.Release, a)
		return
	case !target.Ready && (target.Deleting || p.Deleting) && p.silent(target):
		// Nobody waits for a cluster that is written off, or whose tenant is going: its
		// syncer removes what it is not assigned, should it ever return.
		p.out.Release = append(p.out.Release, a)
		return
	case !target.Ready:
		message = "the target is silent; its copy is removed when it returns"
		if target.Deleting || p.Deleting {
			p.next(p.silenceEnds(target))
		}
	}
	p.out.Stages[a.Name] = Stage{StageRemoving, message}
	p.update(a, a.DeepCopy(), schedulingv1alpha1.AssignmentRemoving, message, 0)
}

// silenceEnds is when a silent target counts as dead for one who wants it gone: what is
// left then is only to forget it. A Placement may ask for less patience than the
// default, but not keep an admin from deleting a SyncTarget by asking for more.
func (p *plan) silenceEnds(t *scheduling.Target) time.Time {
	tolerated := scheduling.DefaultUnreachableToleration
	if p.Toleration > 0 {
		tolerated = min(tolerated, p.Toleration)
	}
	return t.SilentSince(p.ListeningSince).Add(tolerated)
}

func (p *plan) silent(t *scheduling.Target) bool { return !p.silenceEnds(t).After(p.Now) }

// update asks for a write if anything changed. Requests in flight are worth one only
// while an Assignment drains.
func (p *plan) update(old, updated *schedulingv1alpha1.Assignment, phase schedulingv1alpha1.AssignmentPhase, message string, inFlight int64) {
	updated.Status = schedulingv1alpha1.AssignmentStatus{Phase: phase, Message: message}
	if phase == schedulingv1alpha1.AssignmentPhaseDraining {
		updated.Status.InFlight = inFlight
	}
	u := Update{
		Assignment:    updated,
		SpecChanged:   !equality.Semantic.DeepEqual(old.Spec, updated.Spec),
		StatusChanged: old.Status != updated.Status,
	}
	if u.SpecChanged || u.StatusChanged {
		p.out.Update = append(p.out.Update, u)
	}
}
