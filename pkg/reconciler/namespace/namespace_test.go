package namespace

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/controller/namespace/deletion"

	"github.com/13eedeaf/kcp/pkg/informer/informertest"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
)

func TestReconcile(t *testing.T) {
	errDown := errors.New("down")
	namespace := func(cluster, name string, deleting bool) *corev1.Namespace {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{logicalcluster.AnnotationKey: cluster}}}
		if deleting {
			now := metav1.Now()
			ns.DeletionTimestamp = &now
		}
		return ns
	}
	account := &unstructured.Unstructured{}
	account.SetName("default")
	account.SetNamespace("has-account")
	account.SetAnnotations(map[string]string{logicalcluster.AnnotationKey: "a"})
	namespaces, _ := informertest.New(t, &corev1.Namespace{},
		namespace("a", "new", false), namespace("a", "has-account", false), namespace("b", "has-account", false),
		namespace("a", "going", true), namespace("dying", "new", false))
	accounts, _ := informertest.New(t, &unstructured.Unstructured{}, account)
	terminating := apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "default", errDown)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}

	cases := map[string]struct {
		cluster     logicalcluster.Name
		namespace   string
		fail        error
		wantCreated []string
		wantDeleted []string
		want        reconciler.Result
		wantErr     error
	}{
		"new":                          {cluster: "a", namespace: "new", wantCreated: []string{"a|new"}},
		"has its account":              {cluster: "a", namespace: "has-account"},
		"account of another cluster":   {cluster: "b", namespace: "has-account", wantCreated: []string{"b|has-account"}},
		"absent":                       {cluster: "b", namespace: "new"},
		"workspace is going":           {cluster: "dying", namespace: "new"},
		"account made meanwhile":       {cluster: "a", namespace: "new", fail: apierrors.NewAlreadyExists(schema.GroupResource{}, "default"), wantCreated: []string{"a|new"}},
		"namespace gone meanwhile":     {cluster: "a", namespace: "new", fail: apierrors.NewNotFound(schema.GroupResource{}, "new"), wantCreated: []string{"a|new"}},
		"namespace deleted meanwhile":  {cluster: "a", namespace: "new", fail: terminating, wantCreated: []string{"a|new"}},
		"account cannot be made":       {cluster: "a", namespace: "new", fail: errDown, wantCreated: []string{"a|new"}, wantErr: errDown},
		"deleted":                      {cluster: "a", namespace: "going", wantDeleted: []string{"a|going"}},
		"content remains":              {cluster: "a", namespace: "going", fail: &deletion.ResourcesRemainingError{Estimate: 15}, wantDeleted: []string{"a|going"}, want: reconciler.Result{RequeueAfter: maxWait}},
		"content remains for a moment": {cluster: "a", namespace: "going", fail: &deletion.ResourcesRemainingError{Estimate: 1}, wantDeleted: []string{"a|going"}, want: reconciler.Result{RequeueAfter: 600 * time.Millisecond}},
		"content cannot be deleted":    {cluster: "a", namespace: "going", fail: errDown, wantDeleted: []string{"a|going"}, wantErr: errDown},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var created, deleted []string
			c := &Controller{
				namespaces:      namespaces,
				serviceAccounts: accounts,
				deleting:        func(cluster logicalcluster.Name) bool { return cluster == "dying" },
				createServiceAccount: func(_ context.Context, cluster logicalcluster.Name, namespace string) error {
					created = append(created, string(cluster)+"|"+namespace)
					return tc.fail
				},
				deleteContent: func(_ context.Context, cluster logicalcluster.Name, namespace string) error {
					deleted = append(deleted, string(cluster)+"|"+namespace)
					return tc.fail
				},
			}
			got, err := c.reconcile(t.Context(), logicalcluster.Key{Cluster: tc.cluster, Name: tc.namespace})
			if !cmp.Equal(tc.wantErr, err, cmpopts.EquateErrors()) {
				t.Errorf("error %v, want %v", err, tc.wantErr)
			}
			for what, diff := range map[string]string{
				"result":           cmp.Diff(tc.want, got),
				"service accounts": cmp.Diff(tc.wantCreated, created),
				"deletions":        cmp.Diff(tc.wantDeleted, deleted),
			} {
				if diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
		})
	}
}
