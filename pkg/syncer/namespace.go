package syncer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/utils/ptr"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
)

const (
	// soon is how long to wait for what takes milliseconds and sends no event.
	soon = 25 * time.Millisecond
	// later is how long to wait for a cache that lags behind what a call has shown.
	later = 250 * time.Millisecond
)

// assigned returns the Assignment of a namespace to this target. active is false while
// it is being deleted.
func (s *session) assigned(key namespaceKey) (a *unstructured.Unstructured, active bool) {
	a, ok := s.assignments.Get(key.Cluster, key.Namespace, s.id.targetKey)
	if !ok {
		return nil, false
	}
	return a, a.GetDeletionTimestamp() == nil
}

func (s *session) reconcileNamespace(ctx context.Context, key namespaceKey) (reconciler.Result, error) {
	assignment, active := s.assigned(key)
	if active {
		return s.ensureNamespace(ctx, key)
	}
	return s.removeNamespace(ctx, key, assignment)
}

// ensureNamespace makes the downstream namespace and the syncer's access to it, and sees
// what there is.
func (s *session) ensureNamespace(ctx context.Context, key namespaceKey) (reconciler.Result, error) {
	name := s.id.namespace(key)
	ns, ok := s.down.namespace(name)
	if !ok {
		return s.createNamespace(ctx, key, name)
	}
	if ns.GetDeletionTimestamp() != nil {
		// Its end is an event.
		s.down.close(name)
		return reconciler.Result{}, nil
	}
	if owner, ok := s.owner(ns); !ok || owner != key {
		return reconciler.Result{}, fmt.Errorf("downstream namespace %q is not the copy of %s: its annotation %s says %q",
			name, key, names.SourceAnnotation, ns.GetAnnotations()[names.SourceAnnotation])
	}
	if err := s.ensurePodSecurity(ctx, ns); err != nil {
		return reconciler.Result{}, err
	}
	if s.down.has(ns) {
		return reconciler.Result{}, nil
	}
	if err := s.ensureAccess(ctx, name); err != nil {
		return reconciler.Result{}, err
	}
	applied, err := s.copiesIn(ctx, key)
	if apierrors.IsForbidden(err) {
		// The role binding has yet to come into force.
		return reconciler.Result{RequeueAfter: soon}, nil
	}
	if err != nil {
		return reconciler.Result{}, err
	}
	s.down.open(ns, key, applied)
	s.enqueueNamespace(key)
	return reconciler.Result{}, nil
}

func (s *session) createNamespace(ctx context.Context, key namespaceKey, name string) (reconciler.Result, error) {
	ns := &unstructured.Unstructured{Object: map[string]any{}}
	ns.SetAPIVersion("v1")
	ns.SetKind("Namespace")
	ns.SetName(name)
	ns.SetLabels(map[string]string{names.SyncerLabel: s.id.instanceID, podsecurity.EnforceLevelLabel: s.id.podSecurity})
	source := names.Source{Cluster: key.Cluster, Namespace: key.Namespace}
	if a, ok := s.assigned(key); ok {
		source.Path = a.GetAnnotations()[logicalcluster.PathAnnotationKey]
	}
	ns.SetAnnotations(map[string]string{names.SourceAnnotation: source.Annotation()})
	_, err := s.down.client.Resource(namespacesGVR).Create(ctx, ns, metav1.CreateOptions{FieldManager: names.FieldManager})
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Created the namespace downstream", "namespace", name)
		// The cache will say so.
		return reconciler.Result{}, nil
	case !apierrors.IsAlreadyExists(err):
		return reconciler.Result{}, fmt.Errorf("cannot create downstream namespace %q: %w", name, err)
	}
	existing, err := s.down.client.Resource(namespacesGVR).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return reconciler.Result{}, fmt.Errorf("cannot read downstream namespace %q: %w", name, err)
	}
	if owner, ok := s.owner(existing); !ok || owner != key {
		return reconciler.Result{}, fmt.Errorf("downstream namespace %q exists and is not this syncer's: remove it or give it label %s=%s and annotation %s=%s",
			name, names.SyncerLabel, s.id.instanceID, names.SourceAnnotation, source.Annotation())
	}
	return reconciler.Result{RequeueAfter: later}, nil
}

// ensurePodSecurity keeps tenants' pods from the nodes: whoever has a node has the pods and
// Secrets of all other tenants there.
func (s *session) ensurePodSecurity(ctx context.Context, ns *unstructured.Unstructured) error {
	if ns.GetLabels()[podsecurity.EnforceLevelLabel] == s.id.podSecurity {
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, podsecurity.EnforceLevelLabel, s.id.podSecurity)
	if _, err := s.down.client.Resource(namespacesGVR).Patch(ctx, ns.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: names.FieldManager}); err != nil {
		return fmt.Errorf("cannot set the Pod Security Standard of downstream namespace %q: %w", ns.GetName(), err)
	}
	return nil
}

// ensureAccess binds the role for Secrets and ConfigMaps, and for what users see and do in
// pods, to the syncer's account in a namespace.
func (s *session) ensureAccess(ctx context.Context, namespace string) error {
	client := s.down.client.Resource(roleBindingsGVR).Namespace(namespace)
	if _, err := client.Get(ctx, names.FieldManager, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		binding, err := s.accessBinding(namespace)
		if err != nil {
			return err
		}
		if _, err := client.Create(ctx, binding, metav1.CreateOptions{FieldManager: names.FieldManager}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("cannot bind %q in downstream namespace %q: %w", names.DataRole(s.id.instanceID), namespace, err)
		}
	} else if err != nil {
		return fmt.Errorf("cannot read the role binding of downstream namespace %q: %w", namespace, err)
	}
	return nil
}

func (s *session) accessBinding(namespace string) (*unstructured.Unstructured, error) {
	binding := &rbacv1.RoleBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{
			Name: names.FieldManager, Namespace: namespace,
			Labels: map[string]string{names.SyncerLabel: s.id.instanceID},
		},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: names.DataRole(s.id.instanceID)},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.id.account.Namespace, Name: s.id.account.Name}},
	}
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(binding)
	if err != nil {
		return nil, fmt.Errorf("cannot convert the role binding of namespace %q: %w", namespace, err)
	}
	return &unstructured.Unstructured{Object: u}, nil
}

// removeNamespace removes the downstream namespace, then what the syncer wrote in the
// workspace's, then its hold on the Assignment, which is nil when there is none.
func (s *session) removeNamespace(ctx context.Context, key namespaceKey, assignment *unstructured.Unstructured) (reconciler.Result, error) {
	name := s.id.namespace(key)
	ns, ok := s.down.namespace(name)
	if ok {
		return s.deleteNamespace(ctx, key, ns, assignment)
	}
	s.down.close(name)
	s.settled.Range(func(object, _ any) bool {
		if object.(objectKey).namespaceKey == key {
			s.settled.Delete(object)
		}
		return true
	})
	if assignment == nil || !slices.Contains(assignment.GetFinalizers(), workloadv1alpha1.SyncerFinalizer) {
		return reconciler.Result{}, nil
	}
	// The cache does not know it; the cluster has the last word.
	existing, err := s.down.client.Resource(namespacesGVR).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		if _, ours := s.owner(existing); ours {
			return reconciler.Result{RequeueAfter: later}, nil
		}
	} else if !isMissing(err, name) {
		return reconciler.Result{}, fmt.Errorf("cannot tell whether downstream namespace %q is gone: %w", name, err)
	}
	left, err := s.deleteUpstream(ctx, key)
	if err != nil {
		return reconciler.Result{}, err
	}
	if left > 0 {
		return reconciler.Result{RequeueAfter: later}, nil
	}
	return reconciler.Result{}, s.releaseAssignment(ctx, key, assignment)
}

func (s *session) deleteNamespace(ctx context.Context, key namespaceKey, ns, assignment *unstructured.Unstructured) (reconciler.Result, error) {
	if owner, ok := s.owner(ns); !ok || owner != key || ns.GetDeletionTimestamp() != nil {
		return reconciler.Result{}, nil
	}
	if assignment == nil {
		gone, err := s.up.gone(ctx, resources.Assignments.GroupVersionResource, key.key(s.id.targetKey))
		if err != nil {
			return reconciler.Result{}, err
		}
		if !gone {
			return reconciler.Result{RequeueAfter: later}, nil
		}
	}
	left, err := s.removeWorkloads(ctx, ns.GetName())
	if err != nil {
		return reconciler.Result{}, err
	}
	if left > 0 {
		return reconciler.Result{RequeueAfter: later}, nil
	}
	klog.FromContext(ctx).Info("Deleting the namespace downstream: it is no longer assigned here", "namespace", ns.GetName())
	err = s.down.client.Resource(namespacesGVR).Delete(ctx, ns.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: ptr.To(ns.GetUID())},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return reconciler.Result{}, fmt.Errorf("cannot delete downstream namespace %q: %w", ns.GetName(), err)
	}
	return reconciler.Result{}, nil
}

// deleteUpstream deletes the syncer's reports and mirrors in a namespace, and returns
// how many there were.
func (s *session) deleteUpstream(ctx context.Context, key namespaceKey) (int, error) {
	n := 0
	for _, report := range s.reports.ListNamespace(key.Cluster, key.Namespace) {
		n++
		if err := s.deleteUp(ctx, resources.SyncReports, key, report); err != nil {
			return n, err
		}
	}
	for r, i := range s.mirrors {
		for _, mirror := range i.ListNamespace(key.Cluster, key.Namespace) {
			if _, ok := s.mirrored(r, mirror); !ok {
				continue
			}
			n++
			if err := s.deleteUp(ctx, r, key, mirror); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// deleteUp deletes one object that the syncer wrote in the workspace.
func (s *session) deleteUp(ctx context.Context, r resources.Resource, key namespaceKey, obj *unstructured.Unstructured) error {
	client, err := s.up.namespaced(r.GroupVersionResource, key.Cluster, key.Namespace)
	if err != nil {
		return err
	}
	if r == resources.Pods {
		s.withdrawn.Store(obj.GetUID(), struct{}{})
	}
	err = client.Delete(ctx, obj.GetName(), metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0),
		Preconditions:      &metav1.Preconditions{UID: ptr.To(obj.GetUID())},
	})
	if err != nil {
		s.withdrawn.Delete(obj.GetUID())
	}
	// A conflict is another object under the name; the next pass sees it.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("cannot delete %s %s: %w", r, key.key(obj.GetName()), err)
	}
	return nil
}

func (s *session) releaseAssignment(ctx context.Context, key namespaceKey, assignment *unstructured.Unstructured) error {
	kept := slices.DeleteFunc(slices.Clone(assignment.GetFinalizers()), func(f string) bool { return f == workloadv1alpha1.SyncerFinalizer })
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             assignment.GetUID(),
		"resourceVersion": assignment.GetResourceVersion(),
		"finalizers":      kept,
	}})
	if err != nil {
		return fmt.Errorf("cannot encode the patch of an assignment: %w", err)
	}
	client, err := s.up.namespaced(resources.Assignments.GroupVersionResource, key.Cluster, key.Namespace)
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, assignment.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: names.FieldManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot release assignment %s: %w", key.key(assignment.GetName()), err)
	}
	klog.FromContext(ctx).Info("The namespace is gone downstream, released its assignment", "namespace", s.id.namespace(key))
	return nil
}
