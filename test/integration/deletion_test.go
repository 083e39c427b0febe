package integration

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/13eedeaf/kcp/test/framework"
)

// TestDeletePropagation deletes with each propagation policy. The two that upstream turns
// into finalizers for its garbage collector must not leave objects that wait for it;
// finalizers of others are honoured as ever.
func TestDeletePropagation(t *testing.T) {
	s := framework.Start(t)
	c := s.Admin(t, "root")
	policies := map[string]*metav1.DeletionPropagation{
		"default":    nil,
		"background": ptr.To(metav1.DeletePropagationBackground),
		"foreground": ptr.To(metav1.DeletePropagationForeground),
		"orphan":     ptr.To(metav1.DeletePropagationOrphan),
	}
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			labels := map[string]string{"app": name}
			_, err := c.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: appsv1.DeploymentSpec{
					Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: corev1.PodTemplateSpec{
						ObjectMeta: metav1.ObjectMeta{Labels: labels},
						Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/image"}}},
					},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.AppsV1().Deployments("default").Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: policy}); err != nil {
				t.Fatal(err)
			}
			framework.Eventually(t, "the deployment is gone", func(ctx context.Context) (bool, string) {
				d, err := c.AppsV1().Deployments("default").Get(ctx, name, metav1.GetOptions{})
				return apierrors.IsNotFound(err), fmt.Sprintf("%v, finalizers %v", err, d.Finalizers)
			})
		})
	}

	t.Run("finalizers of others", func(t *testing.T) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}}}
		if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.CoreV1().ConfigMaps("default").Delete(t.Context(), "held", metav1.DeleteOptions{PropagationPolicy: policies["foreground"]}); err != nil {
			t.Fatal(err)
		}
		got, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), "held", metav1.GetOptions{})
		if err != nil || got.DeletionTimestamp == nil {
			t.Fatalf("config map %+v, %v; want it to wait for its finalizer", got, err)
		}
		if _, err := c.CoreV1().ConfigMaps("default").Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), "held", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("config map without finalizer: %v, want NotFound", err)
		}
	})
}
