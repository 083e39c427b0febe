package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/test/framework"
)

const (
	gateway      = "gw-1"
	tenantPath   = "root:tenant"
	namespaceWeb = "web"
)

func TestHandover(t *testing.T) {
	s := newStage(t)
	ctx := t.Context()
	// A cordoned west makes east the first choice; then both are open.
	s.patchTarget("west", `{"spec":{"unschedulable":true}}`)
	s.application(namespaceWeb)
	before := s.deployment(namespaceWeb)

	a := s.assignments(namespaceWeb, "east Active Syncing")["east"]
	if diff := cmp.Diff([]string{workloadv1alpha1.SyncerFinalizer}, a.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	if a.Spec.Location != "everywhere" || a.Spec.LocationPath != "root" || a.Spec.Target != s.key("east") || a.Spec.Placement != schedulingv1alpha1.DefaultPlacementName {
		t.Errorf("Assignment is for %+v", a.Spec)
	}
	s.patchTarget("west", `{"spec":{"unschedulable":null}}`)

	// Serving needs the pods and the gateway.
	s.report("east", namespaceWeb, 2)
	s.available(namespaceWeb, 2, 2)
	s.renew()
	s.route(namespaceWeb, 0)
	s.assignments(namespaceWeb, "east Active Serving")
	framework.Eventually(t, "the Ingress has the gateway's address", func(ctx context.Context) (bool, string) {
		i, err := s.kube.NetworkingV1().Ingresses(namespaceWeb).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		points := i.Status.LoadBalancer.Ingress
		return len(points) == 1 && points[0].IP == "192.0.2.7", fmt.Sprintf("%+v", points)
	})

	// Lesson 1: cordon moves nothing; what is new goes elsewhere.
	s.patchTarget("east", `{"spec":{"unschedulable":true}}`)
	s.application("other")
	s.assignments("other", "west Active Syncing")
	s.assignments(namespaceWeb, "east Active Serving")

	// Lesson 3: the drain makes before it breaks.
	s.patchTarget("east", fmt.Sprintf(`{"spec":{"evictAfter":%q}}`, time.Now().UTC().Format(time.RFC3339)))
	s.assignments(namespaceWeb, "east Active Serving", "west Active Syncing")
	s.drain("east", workloadv1alpha1.DrainDraining, "Applying")
	s.report("west", namespaceWeb, 1)
	drain := s.drain("east", workloadv1alpha1.DrainDraining, "WaitingForPods")
	if n := drain.Namespaces[0]; n.Workspace != tenantPath || n.Namespace != namespaceWeb || !strings.Contains(n.Message, "west at Location") {
		t.Errorf("drain shows %+v", n)
	}
	s.available(namespaceWeb, 4, 3)
	s.report("west", namespaceWeb, 2)
	s.drain("east", workloadv1alpha1.DrainDraining, "WaitingForGateway")
	s.assignments(namespaceWeb, "east Active Serving", "west Active Syncing")
	s.route(namespaceWeb, 0)
	s.assignments(namespaceWeb, "east Draining Draining", "west Active Serving")
	s.route(namespaceWeb, 3)
	framework.Eventually(t, "a deadline for what is in flight", func(ctx context.Context) (bool, string) {
		a, err := s.clients.Assignments(s.tenant, namespaceWeb).Get(ctx, s.key("east"), metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return a.Spec.DrainDeadline != nil && a.Status.InFlight == 3, fmt.Sprintf("%+v", a)
	})
	s.route(namespaceWeb, 0)
	s.assignments(namespaceWeb, "east going", "west Active Serving")
	// Lesson 7: a copy that is going no longer counts.
	s.available(namespaceWeb, 2, 2)
	s.drain("east", workloadv1alpha1.DrainDraining, "Removing")
	s.removed("east", namespaceWeb)
	s.assignments(namespaceWeb, "west Active Serving")
	s.route(namespaceWeb, 0)
	s.drain("east", workloadv1alpha1.DrainEmpty)
	framework.Eventually(t, "nothing of east is left", func(ctx context.Context) (bool, string) {
		reports, err := s.clients.SyncReports(s.tenant, namespaceWeb).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		slices, err := s.kube.DiscoveryV1().EndpointSlices(namespaceWeb).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		return len(reports.Items) == 1 && len(slices.Items) == 1, fmt.Sprintf("%d reports, %d slices", len(reports.Items), len(slices.Items))
	})
	after := s.deployment(namespaceWeb)
	if before.Generation != after.Generation || !cmp.Equal(before.Spec, after.Spec) || !cmp.Equal(before.Labels, after.Labels) || !cmp.Equal(before.Annotations, after.Annotations) {
		t.Errorf("the move changed the Deployment: %s", cmp.Diff(before, after))
	}

	// Lesson 4: the only target left is blocked, and says why.
	s.patchTarget("west", fmt.Sprintf(`{"spec":{"evictAfter":%q}}`, time.Now().UTC().Format(time.RFC3339)))
	drain = s.drain("west", workloadv1alpha1.DrainBlocked, "Blocked", "Blocked")
	if m := drain.Namespaces[0].Message; !strings.Contains(m, "no other target can take over") || !strings.Contains(m, "east at Location") || !strings.Contains(m, "it is drained since") {
		t.Errorf("blocked because %q", m)
	}
	s.assignments(namespaceWeb, "west Active Serving")

	// Lesson 10: uncordon clears it all.
	s.patchTarget("west", `{"spec":{"evictAfter":null,"unschedulable":null}}`)
	framework.Eventually(t, "no drain", func(context.Context) (bool, string) { return s.target("west").Status.Drain == nil, "" })
	s.assignments(namespaceWeb, "west Active Serving")

	// Lesson 27: a failure is an event on the user's object.
	r, err := s.clients.SyncReports(s.tenant, namespaceWeb).Get(ctx, s.key("west")+"-deployments-web", metav1.GetOptions{})
	s.must(err)
	r.Report.Synced, r.Report.Reason, r.Report.Message = false, "Forbidden", "quota exceeded"
	_, err = s.clients.SyncReports(s.tenant, namespaceWeb).Update(ctx, r, metav1.UpdateOptions{})
	s.must(err)
	framework.Eventually(t, "an event tells of the failure", func(ctx context.Context) (bool, string) {
		events, err := s.kube.CoreV1().Events(namespaceWeb).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=web,reason=Forbidden"})
		if err != nil {
			return false, err.Error()
		}
		return len(events.Items) == 1 && strings.Contains(events.Items[0].Message, "quota exceeded"), fmt.Sprintf("%+v", events.Items)
	})
	s.targetDeleted()
}

// TestLesson02FutureDrainSurvivesARestart sets evictAfter into the future and restarts
// the server meanwhile: nothing moves before the instant, and the move begins after it.
func TestLesson02FutureDrainSurvivesARestart(t *testing.T) {
	s := newStage(t)
	s.patchTarget("west", `{"spec":{"unschedulable":true}}`)
	s.application(namespaceWeb)
	s.assignments(namespaceWeb, "east Active Syncing")
	s.patchTarget("west", `{"spec":{"unschedulable":null}}`)

	at := time.Now().Add(10 * time.Second).UTC().Truncate(time.Second)
	s.patchTarget("east", fmt.Sprintf(`{"spec":{"evictAfter":%q}}`, at.Format(time.RFC3339)))
	s.drain("east", workloadv1alpha1.DrainWaiting)
	s.restart()
	due := at
	if up := time.Now(); up.After(due) {
		// The start took longer.
		due = up
	}
	created := s.assignments(namespaceWeb, "east Active Syncing", "west Active Syncing")["west"].CreationTimestamp
	if created.Time.Before(at) {
		t.Errorf("the replacement was made at %s, before %s", created, at)
	}
	if late := created.Sub(due); late > 30*time.Second {
		t.Errorf("the replacement was made %s after it was due", late)
	}
}
