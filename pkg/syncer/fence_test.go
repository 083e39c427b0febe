package syncer

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

func TestForeignNamespaceIsNotAdopted(t *testing.T) {
	w := newWorld(t)
	foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	if _, err := w.kube.CoreV1().Namespaces().Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.put("configmaps", settings)
	w.assign()
	w.start()
	other := w.put("assignments", fmt.Sprintf(`
apiVersion: scheduling.kcp.io/v1alpha1
kind: Assignment
metadata: {name: %[1]s, namespace: other, annotations: {kcp.io/cluster: cluster2}}
spec: {target: %[1]s}`, w.id.targetKey))
	own := w.id.namespace(namespaceKey{"cluster2", other.GetNamespace()})
	w.eventually("another namespace is made", func() bool {
		_, err := w.kube.CoreV1().Namespaces().Get(t.Context(), own, metav1.GetOptions{})
		return err == nil
	})
	if w.downstream(configMaps, "settings") != nil {
		t.Error("objects were applied in somebody's namespace")
	}
	w.vw.remove("assignments", tenantCluster, tenantNamespace, w.id.targetKey)
	w.eventually("the assignment is released", func() bool { return w.upstream("assignments", w.id.targetKey) == nil })
	if w.downstreamNamespace() == nil {
		t.Error("somebody's namespace was deleted")
	}
}

// What the manifest grants: all that the syncer needs in its own namespaces, which the
// other tests show, and nothing elsewhere.
func TestLesson21Fence(t *testing.T) {
	w := deployed(t)
	client, err := kubernetes.NewForConfig(w.syncer)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	other := "other-" + w.id.targetKey
	if _, err := w.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: "x", GenerateName: "x"}
	svc := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	w.eventually("the policy is in force", func() bool {
		_, err := client.CoreV1().Services(other).Create(ctx, svc, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err)
	})
	forbidden := map[string]func() error{
		"read secrets of others": func() error {
			_, err := client.CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{})
			return err
		},
		"read all secrets": func() error {
			_, err := client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
			return err
		},
		"read its own namespace's secrets": func() error {
			_, err := client.CoreV1().Secrets(w.id.account.Namespace).List(ctx, metav1.ListOptions{})
			return err
		},
		"create a service elsewhere": func() error {
			_, err := client.CoreV1().Services(other).Create(ctx, svc, metav1.CreateOptions{})
			return err
		},
		"label a namespace as its own": func() error {
			_, err := client.CoreV1().Namespaces().Patch(ctx, other, types.MergePatchType, []byte(`{"metadata":{"labels":{"`+names.SyncerLabel+`":"`+w.id.instanceID+`"}}}`), metav1.PatchOptions{})
			return err
		},
		"give its label away": func() error {
			_, err := client.CoreV1().Namespaces().Patch(ctx, w.namespace, types.MergePatchType, []byte(`{"metadata":{"labels":{"`+names.SyncerLabel+`":null}}}`), metav1.PatchOptions{})
			return err
		},
		"delete a namespace of others": func() error {
			return client.CoreV1().Namespaces().Delete(ctx, other, metav1.DeleteOptions{})
		},
		"bind another role": func() error {
			u, err := (&session{id: w.id}).accessBinding(w.namespace)
			if err != nil {
				return err
			}
			u.SetName("more")
			_ = unstructured.SetNestedField(u.Object, "cluster-admin", "roleRef", "name")
			d := dynamicFor(t, w.syncer)
			_, err = d.Resource(roleBindingsGVR).Namespace(w.namespace).Create(ctx, u, metav1.CreateOptions{})
			return err
		},
		"bind its role elsewhere": func() error {
			u, err := (&session{id: w.id}).accessBinding(other)
			if err != nil {
				return err
			}
			_, err = dynamicFor(t, w.syncer).Resource(roleBindingsGVR).Namespace(other).Create(ctx, u, metav1.CreateOptions{})
			return err
		},
	}
	for what, f := range forbidden {
		if err := f(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: error = %v, want Forbidden", what, err)
		}
	}
}
