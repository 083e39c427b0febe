package scheduling

import (
	"fmt"
	"strings"
	"time"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
)

// Verdict is why a target can or cannot take a new namespace now.
type Verdict int

// Eligible comes first, then the reasons against, in the order in which they are asked.
const (
	Eligible Verdict = iota
	Deleting
	Draining
	Cordoned
	NeverConnected
	NotReady
	// Leaving means that the target is still removing its earlier copy of this
	// namespace, whose record bears the name that a new one would have.
	Leaving
)

// Candidate is one target of a fitting Location as the scheduler judges it.
type Candidate struct {
	Target       *Target
	Location     string
	LocationPath string
	Verdict      Verdict
	// Namespaces counts those that the target has.
	Namespaces int
}

// Eligible reports whether the target could take a new namespace now.
func (c Candidate) Eligible() bool { return c.Verdict == Eligible }

// Reason says in words why the target cannot take a namespace, or for an eligible one
// how it scores.
func (c Candidate) Reason() string {
	switch c.Verdict {
	case Deleting:
		return "it is being deleted"
	case Draining:
		return "it is drained since " + stamp(c.Target.EvictAfter)
	case Cordoned:
		return "it is cordoned"
	case NeverConnected:
		return "it is not ready: no syncer has connected yet"
	case NotReady:
		return "it is not ready: its syncer has not been heard since " + stamp(c.Target.LastHeartbeat)
	case Leaving:
		return "it is still removing its earlier copy of this namespace"
	}
	score := fmt.Sprintf("%d %s", c.Namespaces, plural(c.Namespaces, "namespace"))
	if c.Target.MilliCPU > 0 {
		score += fmt.Sprintf(" on %s CPUs", decimal(c.Target.MilliCPU))
	}
	if !c.Target.EvictAfter.IsZero() {
		score += ", to be drained at " + stamp(c.Target.EvictAfter)
	}
	return score
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func decimal(milli int64) string {
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%d.%03d", milli/1000, milli%1000), "0"), ".")
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// Verdicts is what Judge finds.
type Verdicts struct {
	// Candidates has every target of every fitting Location, each once: for the first
	// Location by name that contains it.
	Candidates []Candidate
	// Locations are the names of the fitting Locations; Problems are theirs, in words.
	Locations []string
	Problems  []string
	// Next is when a verdict changes by itself, zero for never.
	Next time.Time
}

// Judge looks at every target of every Location that the Placement selects. locations
// is sorted by name. namespaces counts the namespaces that a target has.
func Judge(placement *schedulingv1alpha1.Placement, locations []*Location, namespaces func(target string) int, now time.Time) Verdicts {
	fit, err := fitting(placement, locations)
	if err != nil {
		return Verdicts{Problems: []string{fmt.Sprintf("Placement %q has a malformed selector: %v", placement.Name, err)}}
	}
	var out Verdicts
	size := 0
	for _, l := range fit {
		size += len(l.targets)
	}
	seen := make(map[string]bool, size)
	out.Candidates = make([]Candidate, 0, size)
	for _, l := range fit {
		out.Locations = append(out.Locations, l.Name)
		if l.Problem != "" {
			out.Problems = append(out.Problems, fmt.Sprintf("Location %q: %s", l.Name, l.Problem))
		}
		for _, t := range l.targets {
			if seen[t.Key] {
				continue
			}
			seen[t.Key] = true
			out.Candidates = append(out.Candidates, Candidate{
				Target: t, Location: l.Name, LocationPath: l.Path,
				Verdict: VerdictOn(t, now), Namespaces: namespaces(t.Key),
			})
			if t.EvictAfter.After(now) {
				out.Next = earlier(out.Next, t.EvictAfter)
			}
		}
	}
	return out
}

// VerdictOn says whether a target could take a new namespace now.
func VerdictOn(t *Target, now time.Time) Verdict {
	switch {
	case t.Deleting:
		return Deleting
	case t.draining(now):
		return Draining
	case t.Unschedulable:
		return Cordoned
	case t.Ready:
		return Eligible
	case t.LastHeartbeat.IsZero():
		return NeverConnected
	default:
		return NotReady
	}
}

// earlier returns the earlier of two instants, of which zero stands for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// explain says why nothing can take a namespace.
func (v Verdicts) explain(skip func(target string) bool) string {
	var parts []string
	others := 0
	for _, c := range v.Candidates {
		if skip(c.Target.Key) {
			continue
		}
		if others++; others <= maxExplained {
			parts = append(parts, fmt.Sprintf("%s at Location %q: %s", c.Target.Key, c.Location, c.Reason()))
		}
	}
	if more := others - maxExplained; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	parts = append(parts, v.Problems...)
	switch {
	case len(parts) > 0:
		return strings.Join(parts, "; ")
	case len(v.Locations) == 0:
		return "no Location fits the Placement"
	case len(v.Candidates) == 0:
		return fmt.Sprintf("%s %s %s no target", plural(len(v.Locations), "Location"), quoted(v.Locations), verb(len(v.Locations), "contains", "contain"))
	default:
		return fmt.Sprintf("%s %s %s no other target", plural(len(v.Locations), "Location"), quoted(v.Locations), verb(len(v.Locations), "contains", "contain"))
	}
}

// maxExplained bounds how many candidates a message names; the Placement's status has
// them all.
const maxExplained = 10

func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(out, ", ")
}

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
