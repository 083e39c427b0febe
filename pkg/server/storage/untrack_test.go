package storage

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/13eedeaf/kcp/pkg/server/admission"
)

func TestUntrack(t *testing.T) {
	entry := func(manager string, op metav1.ManagedFieldsOperationType, subresource string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: op, Subresource: subresource, APIVersion: "v1",
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`),
		}
	}
	const update, apply = metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply
	own := entry(serverManager, update, "")
	ownStatus := entry(serverManager, update, "status")
	users, usersApply := entry("kubectl", update, ""), entry(serverManager, apply, "")

	cases := map[string]struct {
		server         bool
		entries, wants []metav1.ManagedFieldsEntry
	}{
		"the server's":              {server: true, entries: []metav1.ManagedFieldsEntry{own, ownStatus}},
		"beside a user's":           {server: true, entries: []metav1.ManagedFieldsEntry{users, ownStatus}, wants: []metav1.ManagedFieldsEntry{users}},
		"applied under its name":    {server: true, entries: []metav1.ManagedFieldsEntry{usersApply}, wants: []metav1.ManagedFieldsEntry{usersApply}},
		"none":                      {server: true},
		"a user who takes its name": {entries: []metav1.ManagedFieldsEntry{own}, wants: []metav1.ManagedFieldsEntry{own}},
		"a user, with the server's": {entries: []metav1.ManagedFieldsEntry{users, own}, wants: []metav1.ManagedFieldsEntry{users, own}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if tc.server {
				ctx = admission.WithSystemWriter(ctx, admission.Server())
			}
			untyped := &unstructured.Unstructured{Object: map[string]any{}}
			untyped.SetManagedFields(tc.entries)
			typed := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.entries}}
			check(ctx, t, typed, tc.wants)
			check(ctx, t, untyped, tc.wants)
			if _, found, _ := unstructured.NestedFieldNoCopy(untyped.Object, "metadata", "managedFields"); found != (tc.wants != nil) {
				t.Errorf("metadata.managedFields is there: %t, want %t", found, tc.wants != nil)
			}
		})
	}
}

func check(ctx context.Context, t *testing.T, obj interface {
	runtime.Object
	metav1.Object
}, want []metav1.ManagedFieldsEntry) {
	t.Helper()
	if err := untrack(ctx, obj); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, obj.GetManagedFields()); diff != "" {
		t.Errorf("%T (-want +got):\n%s", obj, diff)
	}
}
