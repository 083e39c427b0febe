package handover

import (
	"time"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
)

// Patience is how long a replacement is given to serve where the copy that it replaces
// does no better. An application that is broken wherever it runs must not hold up a drain
// for ever; but one that only stumbles is not worth losing a pod over.
const Patience = 2 * time.Minute

// noWorse reports whether the copy at new, which does not serve, does all that the copy
// at old does: every workload has at least as many pods that work, nothing that was
// applied there is missing, and every gateway that may count reaches at least as many
// backends. A copy that is worse in anything is no replacement, however long it takes.
func (p *plan) noWorse(old, replacement *schedulingv1alpha1.Assignment) bool {
	was, is := p.gates[old.Name], p.gates[replacement.Name]
	if is.Missing {
		return false
	}
	for _, w := range p.Workloads {
		// What nobody has spoken of is not known to be broken.
		before, toldBefore := was.Available[workloadKey(w)]
		now, told := is.Available[workloadKey(w)]
		if !toldBefore || !told || now < before {
			return false
		}
	}
	return !p.HasIngress || !replacement.ServedByGateways() || p.reachedNoLess(old, replacement)
}

func (p *plan) reachedNoLess(old, replacement *schedulingv1alpha1.Assignment) bool {
	live := false
	for _, g := range p.Gateways {
		switch state, _ := leaseOf(g, p.Now); state {
		case leaseGone:
			continue
		case leaseInGrace:
			return false
		case leaseLive:
			live = true
		}
		was, _ := p.gatewayEntry(g.Name, old.Name)
		is, found := p.gatewayEntry(g.Name, replacement.Name)
		if !found || is.AssignmentGeneration < replacement.Generation || !is.Accepting || is.HealthyBackends < was.HealthyBackends {
			return false
		}
	}
	return live
}
