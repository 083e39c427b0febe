package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/test/framework"
)

// TestLocationTargets: a Location reaches what somebody who may has pointed it to, and
// not what comes to stand there later.
func TestLocationTargets(t *testing.T) {
	s := framework.Start(t)
	root := admin(t, s)
	alice := login(t, s, "alice")
	own, _ := alice.home()
	createWorkspace(t, root, "root", "compute", "")
	location := func(target string) *schedulingv1alpha1.Location {
		return &schedulingv1alpha1.Location{ObjectMeta: metav1.ObjectMeta{Name: "compute"}, Spec: schedulingv1alpha1.LocationSpec{TargetWorkspace: target}}
	}
	newTarget := func(name string) {
		t.Helper()
		_, err := root.SyncTargets("root:compute").Create(t.Context(), &workloadv1alpha1.SyncTarget{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
	}
	instances := func(want int32) {
		t.Helper()
		framework.Eventually(t, fmt.Sprintf("the Location counts %d targets", want), func(ctx context.Context) (bool, string) {
			got, err := alice.clients().Locations(own).Get(ctx, "compute", metav1.GetOptions{})
			if err != nil || got.Status.Instances == nil {
				return false, fmt.Sprint(err)
			}
			return *got.Status.Instances == want, fmt.Sprint(*got.Status.Instances)
		})
	}
	newTarget("one")

	for target, want := range map[string]string{
		"root:compute": "spec.targetWorkspace: you may not use the SyncTargets of",
		"root:nowhere": "spec.targetWorkspace: you may not use the SyncTargets of",
		"root":         "spec.targetWorkspace: you may not use the SyncTargets of",
	} {
		_, err := alice.clients().Locations(own).Create(t.Context(), location(target), metav1.CreateOptions{})
		refused(t, target, err, want)
	}
	_, err := alice.clients().Locations(own).Create(t.Context(), location("Root Compute"), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `spec.targetWorkspace: Invalid value: "Root Compute": workspace path "Root Compute" is malformed`) {
		t.Errorf("no path: %v, want Invalid", err)
	}
	forged := location("")
	forged.Annotations = map[string]string{"scheduling.kcp.io/allowed-target-cluster": "root"}
	got, err := alice.clients().Locations(own).Create(t.Context(), forged, metav1.CreateOptions{})
	if err != nil || len(got.Annotations["scheduling.kcp.io/allowed-target-cluster"]) != 0 {
		t.Errorf("forged annotation: %v, %v", got.Annotations, err)
	}

	use := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "use"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"workload.kcp.io"}, Resources: []string{"synctargets"}, Verbs: []string{"use"}}},
	}
	grant := func() {
		t.Helper()
		_, err := root.RBAC("root:compute").ClusterRoles().Create(t.Context(), use, metav1.CreateOptions{})
		must(t, err)
		compute, err := root.Kube("root:compute")
		must(t, err)
		bindCluster(t, compute, "use", userSubject("alice"))
		bindCluster(t, compute, "kcp:workspace-access", userSubject("alice"))
	}
	grant()
	framework.Eventually(t, "the grant counts", func(ctx context.Context) (bool, string) {
		got, err := alice.clients().Locations(own).Get(ctx, "compute", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		got.Spec.TargetWorkspace = "root:compute"
		_, err = alice.clients().Locations(own).Update(ctx, got, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
	instances(1)
	newTarget("two")
	instances(2)

	// The workspace goes, and another takes its name.
	old, err := root.Workspaces("root").Get(t.Context(), "compute", metav1.GetOptions{})
	must(t, err)
	must(t, root.Workspaces("root").Delete(t.Context(), "compute", metav1.DeleteOptions{}))
	waitGone(t, root, "root", "compute", old.UID)
	createWorkspace(t, root, "root", "compute", "")
	newTarget("strange")
	newTarget("stranger")
	newTarget("strangest")
	instances(0)
	// Whoever changes nothing is not asked, and gets nothing.
	if got, err = alice.clients().Locations(own).Get(t.Context(), "compute", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	got.Labels = map[string]string{"a": "b"}
	if got, err = alice.clients().Locations(own).Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Errorf("a change of labels: %v", err)
	}
	got.Spec.InstanceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	_, err = alice.clients().Locations(own).Update(t.Context(), got, metav1.UpdateOptions{})
	refused(t, "a change of the selector", err, "you may not use the SyncTargets of")
	grant()
	framework.Eventually(t, "a new grant counts", func(ctx context.Context) (bool, string) {
		got, err := alice.clients().Locations(own).Get(ctx, "compute", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		got.Spec.Description = "again"
		_, err = alice.clients().Locations(own).Update(ctx, got, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
	instances(3)
}
