package handover

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/scheduling"
)

// TestGatewaysHaveNoSayAboutOwnTargets: gateways send nothing to a target that a tenant
// brought along, so a handover there must not wait for them.
func TestGatewaysHaveNoSayAboutOwnTargets(t *testing.T) {
	for path, want := range map[string]bool{
		schedulingv1alpha1.GatewayLocationPath: false, // no gateway has confirmed
		"root:users:alice":                     true,
	} {
		s := &State{HasIngress: true, Target: func(string) *scheduling.Target { return nil }, Assignments: []*schedulingv1alpha1.Assignment{{
			ObjectMeta: metav1.ObjectMeta{Name: "t"},
			Spec:       schedulingv1alpha1.AssignmentSpec{Target: "t", LocationPath: path},
		}}}
		if got := Gates(s)["t"].Serving; got != want {
			t.Errorf("Location of %q: serving %v without a gateway, want %v", path, got, want)
		}
		if got := s.trafficTo(s.Assignments[0]).stopped; !got {
			t.Errorf("Location of %q: traffic goes on without a gateway", path)
		}
	}
}
