package handover

import (
	"cmp"
	"context"
	"slices"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/scheduling"
)

// Forecast is what a drain would do with one namespace.
type Forecast struct {
	Namespace logicalcluster.Key
	Result    workloadv1alpha1.DrainResult
	// To is where it would go, nil when it goes nowhere.
	To *scheduling.Assigned
	// Message says in words why; it calls targets by their keys.
	Message string
}

// Preview says what a drain of a target, begun now, would do with each namespace there.
// It changes nothing.
func (c *Controller) Preview(ctx context.Context, target string, force bool) ([]Forecast, error) {
	if !c.loop.WaitForSync(ctx) {
		return nil, ctx.Err()
	}
	now := c.clock.Now()
	current := c.fleet.TargetAt(now)(target)
	if current == nil {
		return nil, nil
	}
	drained := *current
	drained.Unschedulable, drained.EvictAfter, drained.ForceEvict = true, now, force
	namespaces := c.fleet.AssignedTo(target)
	slices.SortFunc(namespaces, func(a, b logicalcluster.Key) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Name, b.Name))
	})
	// As in a drain, what has moved counts for those that come after.
	coming := map[string]int{}
	out := make([]Forecast, 0, len(namespaces))
	for _, namespace := range namespaces {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		in, s, _, ok := c.look(ctx, namespace)
		if !ok {
			continue
		}
		f := forecast(whatIf(in, &drained, coming), s, target)
		f.Namespace = namespace
		if f.To != nil && !slices.ContainsFunc(in.Current, func(cur scheduling.Current) bool { return cur.Target == f.To.Target }) {
			coming[f.To.Target]++
		}
		out = append(out, f)
	}
	return out, nil
}

// whatIf is the input of a decision with another view of one target, and with the
// namespaces that are coming to others.
func whatIf(in scheduling.Input, target *scheduling.Target, coming map[string]int) scheduling.Input {
	find, count := in.Target, in.Namespaces
	in.Target = func(key string) *scheduling.Target {
		if key == target.Key {
			return target
		}
		return find(key)
	}
	in.Namespaces = func(key string) int { return count(key) + coming[key] }
	in.Locations = scheduling.Replace(in.Locations, target)
	return in
}

// forecast says what becomes of a namespace on a target that it has to leave.
func forecast(in scheduling.Input, s *State, target string) Forecast {
	leaving := !slices.ContainsFunc(s.Assignments, func(a *schedulingv1alpha1.Assignment) bool { return a.Name == target && a.DeletionTimestamp == nil })
	d := scheduling.Decide(in)
	switch {
	case s.Deleting:
		return Forecast{Result: workloadv1alpha1.DrainMoves, Message: "the namespace is being deleted"}
	case leaving:
		return Forecast{Result: workloadv1alpha1.DrainMoves, Message: "it is leaving already"}
	case d.Desires(target) && d.Held:
		return Forecast{Result: workloadv1alpha1.DrainHeld, Message: d.Blocked}
	case d.Desires(target):
		return Forecast{Result: workloadv1alpha1.DrainIsBlocked, Message: d.Blocked}
	case len(d.Desired) > 0:
		return Forecast{Result: workloadv1alpha1.DrainMoves, To: &d.Desired[0], Message: d.Desired[0].Reason}
	case in.Empty:
		return Forecast{Result: workloadv1alpha1.DrainMoves, Message: "nothing runs in it"}
	default:
		return Forecast{Result: workloadv1alpha1.DrainEnds, Message: d.Blocked}
	}
}
