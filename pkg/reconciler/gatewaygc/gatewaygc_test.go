package gatewaygc

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/steady"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func clockAt(now time.Time) steady.Clock {
	c := clocktesting.NewFakePassiveClock(now)
	return steady.Clock{Wall: c, Steady: c}
}

// TestReconcile looks at gateway g at an instant at which the server has been up for a
// day, unless a case says otherwise.
func TestReconcile(t *testing.T) {
	// expired makes an instance whose lease ran out that long ago.
	expired := func(ago time.Duration) *networkingv1alpha1.GatewayInstance {
		return &networkingv1alpha1.GatewayInstance{
			ObjectMeta: metav1.ObjectMeta{Name: "g", UID: "i", ResourceVersion: "7"},
			Spec:       networkingv1alpha1.GatewayInstanceSpec{RenewTime: metav1.NewMicroTime(now.Add(-ago - 10*time.Second)), LeaseDurationSeconds: 10},
		}
	}
	report := func(gateway, namespace string, age time.Duration) *networkingv1alpha1.GatewayReport {
		return &networkingv1alpha1.GatewayReport{ObjectMeta: metav1.ObjectMeta{
			Name: gateway, Namespace: namespace, UID: "r", ResourceVersion: "8", CreationTimestamp: metav1.NewTime(now.Add(-age)),
			Annotations: map[string]string{logicalcluster.AnnotationKey: "tenant"},
		}}
	}
	const day = 24 * time.Hour
	tests := map[string]struct {
		instance *networkingv1alpha1.GatewayInstance
		reports  []*networkingv1alpha1.GatewayReport
		up       time.Duration
		want     []string
		wantWait time.Duration
	}{
		"it lives": {
			instance: expired(-5 * time.Second), reports: []*networkingv1alpha1.GatewayReport{report("g", "a", day)},
			wantWait: Retention + 5*time.Second,
		},
		"its lease has run out a while ago": {
			instance: expired(Retention - time.Second), reports: []*networkingv1alpha1.GatewayReport{report("g", "a", day)},
			wantWait: time.Second,
		},
		"it is gone for good": {
			instance: expired(Retention),
			reports:  []*networkingv1alpha1.GatewayReport{report("g", "a", day), report("other", "a", day), report("g", "b", time.Second)},
			want:     []string{"report a/g", "report b/g", "instance g"},
		},
		"the server was away as well": {
			instance: expired(day), reports: []*networkingv1alpha1.GatewayReport{report("g", "a", day)}, up: time.Minute,
			wantWait: Retention - time.Minute,
		},
		"nobody knows it": {
			reports: []*networkingv1alpha1.GatewayReport{report("g", "a", day), report("g", "b", Retention-time.Minute), report("g", "c", 0)},
			want:    []string{"report a/g"}, wantWait: time.Minute,
		},
		"nothing is left": {},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			up := tc.up
			if up == 0 {
				up = day
			}
			var got []string
			clock := clockAt(now)
			c := &Controller{
				clock: clock, since: clock.Ago(up),
				instance: func(name string, _ time.Time) (*networkingv1alpha1.GatewayInstance, bool) {
					return tc.instance, name == "g" && tc.instance != nil
				},
				reports: func() []*networkingv1alpha1.GatewayReport { return tc.reports },
				deleteReport: func(_ context.Context, r *networkingv1alpha1.GatewayReport, o metav1.DeleteOptions) error {
					if *o.Preconditions.ResourceVersion != "8" || *o.Preconditions.UID != "r" {
						t.Errorf("report is deleted with %+v", o.Preconditions)
					}
					got = append(got, "report "+r.Namespace+"/"+r.Name)
					return apierrors.NewNotFound(schema.GroupResource{}, r.Name) // somebody was quicker
				},
				deleteInstance: func(_ context.Context, i *networkingv1alpha1.GatewayInstance, o metav1.DeleteOptions) error {
					if *o.Preconditions.ResourceVersion != "7" || *o.Preconditions.UID != "i" {
						t.Errorf("instance is deleted with %+v", o.Preconditions)
					}
					got = append(got, "instance "+i.Name)
					return nil
				},
			}
			result, err := c.Reconcile(t.Context(), "g")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
			if result.RequeueAfter != tc.wantWait {
				t.Errorf("looks again after %s, want %s", result.RequeueAfter, tc.wantWait)
			}
		})
	}
}

// TestConflict keeps what a gateway that has spoken again wrote, and what comes after.
func TestConflict(t *testing.T) {
	c := &Controller{
		clock: clockAt(now), since: clockAt(now).Ago(time.Hour),
		instance: func(string, time.Time) (*networkingv1alpha1.GatewayInstance, bool) {
			return &networkingv1alpha1.GatewayInstance{}, true
		},
		reports: func() []*networkingv1alpha1.GatewayReport {
			return []*networkingv1alpha1.GatewayReport{{ObjectMeta: metav1.ObjectMeta{Name: "g"}}}
		},
		deleteReport: func(context.Context, *networkingv1alpha1.GatewayReport, metav1.DeleteOptions) error {
			return apierrors.NewConflict(schema.GroupResource{}, "g", nil)
		},
		deleteInstance: func(context.Context, *networkingv1alpha1.GatewayInstance, metav1.DeleteOptions) error {
			t.Error("the instance is deleted")
			return nil
		},
	}
	if _, err := c.Reconcile(t.Context(), "g"); !apierrors.IsConflict(err) {
		t.Errorf("error is %v, want a conflict", err)
	}
}
