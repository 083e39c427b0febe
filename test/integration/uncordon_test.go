package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/test/framework"
)

// uncordon is what "kubectl kcp uncordon" sends, and what must have come of it.
func (s *stage) uncordon(name string) {
	s.t.Helper()
	s.patchTarget(name, `{"spec":{"unschedulable":null,"evictAfter":null,"forceEvict":null}}`)
	framework.Eventually(s.t, name+" is as before its drain", func(context.Context) (bool, string) {
		st := s.target(name)
		return !st.Spec.Unschedulable && st.Spec.EvictAfter == nil && !st.Spec.ForceEvict && st.Status.Drain == nil &&
			meta.IsStatusConditionTrue(st.Status.Conditions, workloadv1alpha1.SyncTargetSchedulable) &&
			meta.FindStatusCondition(st.Status.Conditions, workloadv1alpha1.SyncTargetDrained) == nil, fmt.Sprintf("%+v", st)
	})
}

// begin drains east as "kubectl kcp drain" does.
func (s *stage) begin() {
	s.t.Helper()
	s.patchTarget("east", fmt.Sprintf(`{"spec":{"unschedulable":true,"evictAfter":%q}}`, time.Now().UTC().Format(time.RFC3339)))
}

// serving puts an application on east and lets it serve there.
func (s *stage) serving(namespace string) {
	s.t.Helper()
	s.patchTarget("west", `{"spec":{"unschedulable":true}}`)
	s.application(namespace)
	s.assignments(namespace, "east Active Syncing")
	s.report("east", namespace, 2)
	s.route(namespace, 0)
	s.assignments(namespace, "east Active Serving")
	s.patchTarget("west", `{"spec":{"unschedulable":null}}`)
}

// forget deletes a namespace, and speaks as its syncers until it is gone.
func (s *stage) forget(namespace string) {
	s.t.Helper()
	s.must(s.kube.CoreV1().Namespaces().Delete(s.t.Context(), namespace, metav1.DeleteOptions{}))
	framework.Eventually(s.t, "namespace "+namespace+" is gone", func(ctx context.Context) (bool, string) {
		list, err := s.clients.Assignments(s.tenant, namespace).List(ctx, metav1.ListOptions{})
		s.must(err)
		for i := range list.Items {
			_, err := s.clients.Assignments(s.tenant, namespace).Patch(ctx, list.Items[i].Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				s.t.Fatal(err)
			}
		}
		_, err = s.kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err) && len(list.Items) == 0, fmt.Sprintf("%v, %d assignments", err, len(list.Items))
	})
}

// TestLesson10UncordonAtEveryStage ends a drain of east at each stage: what has not moved
// stays, what has moved goes on, and nothing of the drain is left.
func TestLesson10UncordonAtEveryStage(t *testing.T) {
	parent := newStage(t)
	parent.renew()
	// calledOff plays the end of a replacement on west that is no longer wanted.
	calledOff := func(s *stage, namespace string) {
		s.assignments(namespace, "east Active Serving", "west Draining Draining")
		s.route(namespace, 0)
		s.assignments(namespace, "east Active Serving", "west going")
		s.removed("west", namespace)
		s.assignments(namespace, "east Active Serving")
	}
	// goesOn plays the rest of a move to west that had begun to carry traffic.
	goesOn := func(s *stage, namespace string) {
		s.route(namespace, 0)
		s.assignments(namespace, "east going", "west Active Serving")
		s.removed("east", namespace)
		s.assignments(namespace, "west Active Serving")
	}
	stages := []struct {
		stage string
		// reach goes from a namespace that serves on east to the stage.
		reach, after func(s *stage, namespace string)
	}{
		{
			"Waiting",
			func(s *stage, _ string) {
				s.patchTarget("east", fmt.Sprintf(`{"spec":{"evictAfter":%q}}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
				s.drain("east", workloadv1alpha1.DrainWaiting)
			},
			func(s *stage, namespace string) { s.assignments(namespace, "east Active Serving") },
		},
		{
			"Blocked",
			func(s *stage, _ string) {
				s.patchTarget("west", `{"spec":{"unschedulable":true}}`)
				s.begin()
				s.drain("east", workloadv1alpha1.DrainBlocked, "Blocked")
			},
			func(s *stage, namespace string) {
				s.uncordon("west")
				if a := s.assignments(namespace, "east Active Serving")["east"]; a.Status.Message != "" {
					framework.Eventually(s.t, "it is told nothing of the drain", func(context.Context) (bool, string) {
						m := s.assignments(namespace, "east Active Serving")["east"].Status.Message
						return m == "", m
					})
				}
			},
		},
		{
			"Applying",
			func(s *stage, namespace string) {
				s.begin()
				s.assignments(namespace, "east Active Serving", "west Active Syncing")
				s.drain("east", workloadv1alpha1.DrainDraining, "Applying")
			},
			calledOff,
		},
		{
			"WaitingForPods",
			func(s *stage, namespace string) {
				s.begin()
				s.assignments(namespace, "east Active Serving", "west Active Syncing")
				s.report("west", namespace, 1)
				s.drain("east", workloadv1alpha1.DrainDraining, "WaitingForPods")
			},
			calledOff,
		},
		{
			"WaitingForGateway",
			func(s *stage, namespace string) {
				s.begin()
				s.assignments(namespace, "east Active Serving", "west Active Syncing")
				s.report("west", namespace, 2)
				s.drain("east", workloadv1alpha1.DrainDraining, "WaitingForGateway")
			},
			calledOff,
		},
		{
			"Draining",
			func(s *stage, namespace string) {
				s.begin()
				s.assignments(namespace, "east Active Serving", "west Active Syncing")
				s.report("west", namespace, 2)
				s.route(namespace, 0)
				s.assignments(namespace, "east Draining Draining", "west Active Serving")
				s.drain("east", workloadv1alpha1.DrainDraining, "Draining")
			},
			goesOn,
		},
		{
			"Removing",
			func(s *stage, namespace string) {
				s.begin()
				s.assignments(namespace, "east Active Serving", "west Active Syncing")
				s.report("west", namespace, 2)
				s.route(namespace, 0)
				s.assignments(namespace, "east Draining Draining", "west Active Serving")
				s.route(namespace, 0)
				s.assignments(namespace, "east going", "west Active Serving")
				s.drain("east", workloadv1alpha1.DrainDraining, "Removing")
			},
			goesOn,
		},
	}
	for _, tc := range stages {
		t.Run(tc.stage, func(t *testing.T) {
			s := *parent
			s.t = t
			namespace := strings.ToLower(tc.stage)
			s.serving(namespace)
			before := s.deployment(namespace)
			tc.reach(&s, namespace)
			s.uncordon("east")
			tc.after(&s, namespace)
			if after := s.deployment(namespace); after.Generation != before.Generation || len(after.Annotations) != len(before.Annotations) {
				t.Errorf("the Deployment was changed: %+v, before %+v", after.ObjectMeta, before.ObjectMeta)
			}
			s.forget(namespace)
		})
	}
}

// TestPastEvictAfter pins that an evictAfter in the past implies unschedulable.
func TestPastEvictAfter(t *testing.T) {
	s := newStage(t)
	for _, name := range []string{"east", "west"} {
		s.patchTarget(name, `{"spec":{"evictAfter":"2020-01-01T00:00:00Z"}}`)
		s.drain(name, workloadv1alpha1.DrainEmpty)
		if c := meta.FindStatusCondition(s.target(name).Status.Conditions, workloadv1alpha1.SyncTargetSchedulable); c == nil || c.Status != metav1.ConditionFalse || c.Reason != "Draining" {
			t.Errorf("%s has condition Schedulable %+v, want False for Draining", name, c)
		}
	}
	s.application(namespaceWeb)
	framework.Eventually(t, "the tenant is told that no target takes anything", func(ctx context.Context) (bool, string) {
		p, err := s.clients.Placements(s.tenant).Get(ctx, schedulingv1alpha1.DefaultPlacementName, metav1.GetOptions{})
		s.must(err)
		if len(p.Status.Candidates) != 2 {
			return false, fmt.Sprintf("%+v", p.Status)
		}
		for _, c := range p.Status.Candidates {
			if c.Eligible || c.Reason != "it is drained since 2020-01-01T00:00:00Z" {
				return false, fmt.Sprintf("%+v", c)
			}
		}
		return true, ""
	})
	s.assignments(namespaceWeb)
	s.uncordon("west")
	s.assignments(namespaceWeb, "west Active Syncing")
}

// TestLesson17SyncTargetOfALostCluster deletes the SyncTarget of a cluster that will never
// answer again: what ran there is started elsewhere, nobody waits for the lost syncer, and
// the SyncTarget goes.
func TestLesson17SyncTargetOfALostCluster(t *testing.T) {
	s := newStage(t)
	ctx := t.Context()
	s.renew()
	s.serving(namespaceWeb)
	_, err := s.clients.Placements(s.tenant).Patch(ctx, schedulingv1alpha1.DefaultPlacementName, types.MergePatchType, []byte(`{"spec":{"unreachableToleration":"5s"}}`), metav1.PatchOptions{})
	s.must(err)
	east := s.key("east")
	s.silence()
	s.speak("west")
	s.must(s.clients.SyncTargets(s.compute).Delete(ctx, "east", metav1.DeleteOptions{}))
	west := s.key("west")
	framework.Eventually(t, "a replacement on west", func(ctx context.Context) (bool, string) {
		_, err := s.clients.Assignments(s.tenant, namespaceWeb).Get(ctx, west, metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	// Make before break, also here.
	if a, err := s.clients.Assignments(s.tenant, namespaceWeb).Get(ctx, east, metav1.GetOptions{}); err != nil || a.DeletionTimestamp != nil {
		t.Fatalf("the copy on east is not kept: %+v, %v", a, err)
	}
	s.report("west", namespaceWeb, 2)
	framework.Eventually(t, "the SyncTarget is gone", func(ctx context.Context) (bool, string) {
		s.route(namespaceWeb, 0)
		st, err := s.clients.SyncTargets(s.compute).Get(ctx, "east", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprintf("%+v, %v", st, err)
	})
	list, err := s.clients.Assignments(s.tenant, namespaceWeb).List(ctx, metav1.ListOptions{})
	s.must(err)
	if len(list.Items) != 1 || list.Items[0].Name != west {
		t.Errorf("assignments are %+v, want west alone", list.Items)
	}
	framework.Eventually(t, "nothing that east has said is left", func(ctx context.Context) (bool, string) {
		reports, err := s.clients.SyncReports(s.tenant, namespaceWeb).List(ctx, metav1.ListOptions{})
		s.must(err)
		return len(reports.Items) == 1 && reports.Items[0].Spec.Target == west, fmt.Sprintf("%+v", reports.Items)
	})
}
