package syncer

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

// TestLesson22WhatPodsUseOutlivesThem removes a copy while one of its pods cannot end yet:
// until it has, nothing that it may use goes.
func TestLesson22WhatPodsUseOutlivesThem(t *testing.T) {
	w := deployed(t)
	ctx := t.Context()
	pod := w.pods()[0].Name
	client := w.kube.CoreV1().Pods(w.namespace)
	finalizers := func(patch string) {
		t.Helper()
		if _, err := client.Patch(ctx, pod, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	finalizers(`{"metadata":{"finalizers":["test.kcp.io/hold"]}}`)
	w.vw.remove("assignments", tenantCluster, tenantNamespace, w.id.targetKey)
	w.eventually("all other pods have gone", func() bool {
		pods := w.pods()
		return len(pods) == 1 && pods[0].Name == pod && pods[0].DeletionTimestamp != nil
	})
	if ns := w.downstreamNamespace(); ns == nil || ns.GetDeletionTimestamp() != nil {
		t.Errorf("the namespace goes before its last pod: %v", ns)
	}
	uids := w.uids()
	for _, used := range []string{"configmaps/settings", "secrets/password", "services/web"} {
		if uids[used] == "" {
			t.Errorf("%s is gone before the last pod", used)
		}
	}
	finalizers(`{"metadata":{"finalizers":null}}`)
	w.eventually("the namespace is gone", func() bool { return w.downstreamNamespace() == nil })
}

// TestLesson26NothingBesidesTheTenants: what the syncer makes that runs, anywhere in the
// cluster, is what the tenant asked for.
func TestLesson26NothingBesidesTheTenants(t *testing.T) {
	w := deployed(t)
	label := metav1.ListOptions{LabelSelector: names.SyncerLabel + "=" + w.id.instanceID}
	list, err := w.kube.AppsV1().Deployments("").List(t.Context(), label)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range list.Items {
		if d.Namespace != w.id.account.Namespace {
			got = append(got, d.Namespace+"/"+d.Name)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{w.namespace + "/web"}, got); diff != "" {
		t.Errorf("deployments of the syncer's (-want +got):\n%s", diff)
	}
	pods, err := w.kube.CoreV1().Pods("").List(t.Context(), label)
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if pod.Namespace != w.namespace && pod.Namespace != w.id.account.Namespace {
			t.Errorf("pod %s/%s is nobody's", pod.Namespace, pod.Name)
		}
	}
}
