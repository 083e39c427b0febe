package scheduling

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// DefaultUnreachableToleration is how long a target may be silent where the Placement
// does not say.
const DefaultUnreachableToleration = 5 * time.Minute

// Current is an Assignment that the namespace has.
type Current struct {
	Target string
	// Draining is the order that stands in its spec; Deleting means that it is being
	// taken away.
	Draining bool
	Deleting bool
	// Serving is true when the copy there does its work.
	Serving bool
	Created time.Time
	// Location is the one that it was assigned for.
	Location string
}

// Input is all that a decision for one namespace depends on.
type Input struct {
	Cluster   logicalcluster.Name
	Namespace string
	// Placement decides for the namespace, nil when none selects it.
	Placement *schedulingv1alpha1.Placement
	// Locations are the workspace's effective ones, sorted by name.
	Locations []*Location
	// Target finds any existing target, in a fitting Location or not; nil when it is
	// gone.
	Target func(key string) *Target
	// Namespaces counts the namespaces that a target has.
	Namespaces func(key string) int
	Current    []Current
	// Held says in words why the namespace may not move unless the admin forces it, empty
	// when it may: it has data on its target, or something that must not run twice.
	Held string
	// Empty is true when the namespace holds nothing that runs: it keeps what it has,
	// and where it has to leave it needs no other place.
	Empty bool
	// ListeningSince is the instant from which the server hears heartbeats without a
	// break; silence before is its own.
	ListeningSince time.Time
	Now            time.Time
}

// Move is a Current that a rule forces to go.
type Move struct {
	Target string
	Reason string
	// Dead means that the target has been silent for longer than tolerated; Gone that
	// its SyncTarget no longer exists.
	Dead, Gone bool
	// Force means that the admin wants it gone whether or not something takes over.
	Force bool
}

// Assigned is a target where the namespace belongs.
type Assigned struct {
	Target       string
	Location     string
	LocationPath string
	// Reason says in words why.
	Reason string
}

// Result is a decision.
type Result struct {
	// Desired is where the namespace belongs: one target for now, or none.
	Desired []Assigned
	// Moves has every Current that a rule forces away. One that is also in Desired has
	// to go and cannot: Blocked says why.
	Moves []Move
	// Blocked says in words why a forced move, or a first placement, is impossible now.
	// Held tells that there would be a place, but for Input.Held.
	Blocked string
	Held    bool
	// Candidates are the targets that were looked at. It is empty where the namespace
	// keeps what it has, since then nobody is asked.
	Candidates []Candidate
	// NextDecision is when the answer may change by itself, zero for never.
	NextDecision time.Time
}

// Desires reports whether target is in Desired.
func (r Result) Desires(target string) bool {
	return slices.ContainsFunc(r.Desired, func(a Assigned) bool { return a.Target == target })
}

// Move returns what forces target away.
func (r Result) Move(target string) (Move, bool) {
	i := slices.IndexFunc(r.Moves, func(m Move) bool { return m.Target == target })
	if i < 0 {
		return Move{}, false
	}
	return r.Moves[i], true
}

// Decide says where a namespace belongs.
func Decide(in Input) Result {
	d := decision{Input: in, moves: map[string]Move{}}
	d.judgeCurrent()
	switch {
	case in.Placement == nil:
		d.keepWithoutPlacement()
	case d.keep():
	case in.Empty:
		d.letGo()
	case d.hold():
	case d.choose():
	default:
		d.stay()
	}
	for _, c := range in.Current {
		if m, ok := d.moves[c.Target]; ok {
			d.result.Moves = append(d.result.Moves, m)
		}
	}
	return d.result
}

// decision is one Decide under way.
type decision struct {
	Input
	fit    []*Location
	moves  map[string]Move
	result Result
}

// judgeCurrent finds what forces each current target away, and when that may change.
func (d *decision) judgeCurrent() {
	if d.Placement != nil {
		// A malformed selector is reported by Judge; until it is mended it moves nothing.
		fit, err := fitting(d.Placement, d.Locations)
		if err != nil {
			fit = d.Locations
		}
		d.fit = fit
	}
	for _, c := range d.Current {
		if c.Deleting {
			continue
		}
		if m, forced := d.forced(c.Target); forced {
			d.moves[c.Target] = m
		}
	}
}

func (d *decision) forced(key string) (Move, bool) {
	t := d.Target(key)
	if t == nil {
		return Move{Target: key, Reason: "the target no longer exists", Gone: true, Force: true}, true
	}
	m := Move{Target: key}
	if tolerated := toleration(d.Placement); !t.Ready && tolerated >= 0 {
		since := t.SilentSince(d.ListeningSince)
		if expiry := since.Add(tolerated); expiry.After(d.Now) {
			d.result.NextDecision = earlier(d.result.NextDecision, expiry)
		} else {
			m.Dead = true
			m.Reason = fmt.Sprintf("the target's syncer has been silent since %s, longer than the %s that are tolerated", stamp(since), tolerated)
		}
	}
	if d.Placement != nil && d.locationOf(key) == nil {
		m.Reason = fmt.Sprintf("no Location that Placement %q selects contains the target any longer", d.Placement.Name)
	}
	switch {
	case t.Deleting:
		m.Reason, m.Force = "the target is being deleted", t.ForceEvict
	case t.draining(d.Now):
		m.Reason, m.Force = "the target is drained since "+stamp(t.EvictAfter), t.ForceEvict
	case !t.EvictAfter.IsZero():
		d.result.NextDecision = earlier(d.result.NextDecision, t.EvictAfter)
	}
	return m, m.Reason != ""
}

func toleration(p *schedulingv1alpha1.Placement) time.Duration {
	if p == nil || p.Spec.UnreachableToleration == nil {
		return DefaultUnreachableToleration
	}
	return p.Spec.UnreachableToleration.Duration
}

// locationOf returns a fitting Location that contains the target: the one that it was
// assigned for, if that still does.
func (d *decision) locationOf(key string) *Location {
	var first *Location
	for _, l := range d.fit {
		if l.byKey[key] == nil {
			continue
		}
		if slices.ContainsFunc(d.Current, func(c Current) bool { return c.Target == key && c.Location == l.Name }) {
			return l
		}
		if first == nil {
			first = l
		}
	}
	return first
}

// letGo gives up all places: there is nothing to run.
func (d *decision) letGo() {
	for key, m := range d.moves {
		m.Force = true
		d.moves[key] = m
	}
}

// keepWithoutPlacement leaves everything where it is: an invalid or missing Placement
// never unschedules.
func (d *decision) keepWithoutPlacement() {
	d.result.Blocked = "no Placement selects the namespace"
	if best := d.best(func(c Current) bool { return !d.moves[c.Target].Force }); best != nil {
		d.result.Desired = []Assigned{{Target: best.Target, Reason: "it stays: no Placement selects the namespace"}}
	}
}

// keep settles for what the namespace has and no rule forces away.
func (d *decision) keep() bool {
	best := d.best(func(c Current) bool { _, forced := d.moves[c.Target]; return !forced })
	if best == nil {
		return false
	}
	if d.abandons(*best) && d.choose() {
		return true
	}
	l := d.locationOf(best.Target)
	d.result.Desired = []Assigned{{Target: best.Target, Location: l.Name, LocationPath: l.Path, Reason: "it is there already"}}
	return true
}

// abandons reports whether a replacement that never served should give way to another:
// its target has fallen silent, and the copy that it is to replace still stands.
func (d *decision) abandons(c Current) bool {
	if c.Serving || d.Target(c.Target).Ready {
		return false
	}
	return slices.ContainsFunc(d.Current, func(other Current) bool {
		m, forced := d.moves[other.Target]
		return forced && !m.Dead && !m.Gone && !other.Deleting
	})
}

// best returns the current assignment to keep among those that ok admits: one that
// serves and was not told to drain, oldest first (so that a move which has not begun is
// called off); then one that serves (the old side, where the new one is out); then the
// oldest.
func (d *decision) best(ok func(Current) bool) *Current {
	var kept []Current
	for _, c := range d.Current {
		if !c.Deleting && ok(c) {
			kept = append(kept, c)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	rank := func(c Current) int {
		switch {
		case c.Serving && !c.Draining:
			return 0
		case c.Serving:
			return 1
		case !c.Draining:
			return 2
		default:
			return 3
		}
	}
	best := slices.MinFunc(kept, func(a, b Current) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Created.Compare(b.Created), cmp.Compare(a.Target, b.Target))
	})
	return &best
}

// hold keeps a namespace that is held where it is, unless the admin forces it away.
func (d *decision) hold() bool {
	if d.Input.Held == "" {
		return false
	}
	best := d.best(func(c Current) bool { return !d.moves[c.Target].Force })
	if best == nil {
		return false
	}
	a := Assigned{Target: best.Target, Reason: "it stays: " + d.Input.Held}
	if l := d.locationOf(best.Target); l != nil {
		a.Location, a.LocationPath = l.Name, l.Path
	}
	d.result.Desired = []Assigned{a}
	d.result.Blocked, d.result.Held = d.Input.Held, true
	return true
}

// choose takes the best eligible candidate.
func (d *decision) choose() bool {
	candidates := d.judge().Candidates
	weighted := true
	for i := range candidates {
		weighted = weighted && (!candidates[i].Eligible() || candidates[i].Target.MilliCPU > 0)
	}
	var chosen *Candidate
	for i := range candidates {
		if c := &candidates[i]; c.Eligible() && (chosen == nil || d.compare(c, chosen, weighted) < 0) {
			chosen = c
		}
	}
	if chosen == nil {
		return false
	}
	d.result.Desired = []Assigned{{
		Target: chosen.Target.Key, Location: chosen.Location, LocationPath: chosen.LocationPath,
		Reason: "chosen: " + chosen.Reason(),
	}}
	return true
}

func (d *decision) judge() Verdicts {
	verdicts := Judge(d.Placement, d.Locations, d.Namespaces, d.Now)
	for i := range verdicts.Candidates {
		c := &verdicts.Candidates[i]
		for _, cur := range d.Current {
			if cur.Target == c.Target.Key && cur.Deleting && c.Eligible() {
				c.Verdict = Leaving
			}
		}
	}
	d.result.Candidates = verdicts.Candidates
	return verdicts
}

// compare orders eligible candidates: those not about to be drained first, then the
// fewest namespaces (for their CPUs, where all tell them), then by a hash that spreads
// namespaces and is the same each time.
func (d *decision) compare(a, b *Candidate, weighted bool) int {
	weightA, weightB := int64(1), int64(1)
	if weighted {
		weightA, weightB = a.Target.MilliCPU, b.Target.MilliCPU
	}
	if order := cmp.Or(
		cmp.Compare(boolInt(!a.Target.EvictAfter.IsZero()), boolInt(!b.Target.EvictAfter.IsZero())),
		// How full they would be with this one, multiplied out so that equal is equal.
		cmp.Compare(int64(a.Namespaces+1)*weightB, int64(b.Namespaces+1)*weightA),
	); order != 0 {
		return order
	}
	return cmp.Or(cmp.Compare(d.hash(a.Target.Key), d.hash(b.Target.Key)), cmp.Compare(a.Target.Key, b.Target.Key))
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// hash is FNV-1a over the namespace and the target.
func (d *decision) hash(target string) uint64 {
	h := uint64(14695981039346656037)
	for _, part := range [...]string{string(d.Cluster), "/", d.Namespace, "/", target} {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * 1099511628211
		}
	}
	return h
}

// stay keeps what has to go and cannot, since nothing can take over.
func (d *decision) stay() {
	verdicts := d.judge()
	d.result.NextDecision = earlier(d.result.NextDecision, verdicts.Next)
	best := d.best(func(c Current) bool { return !d.moves[c.Target].Force })
	if best == nil {
		d.result.Blocked = "no target can take the namespace: " + verdicts.explain(func(string) bool { return false })
		return
	}
	reasons := verdicts.explain(func(target string) bool { return target == best.Target })
	d.result.Blocked = "no other target can take over: " + reasons
	a := Assigned{Target: best.Target, Reason: "it stays: no other target can take over"}
	if l := d.locationOf(best.Target); l != nil {
		a.Location, a.LocationPath = l.Name, l.Path
	}
	d.result.Desired = []Assigned{a}
}
