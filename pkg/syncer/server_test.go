package syncer

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/test/framework"
)

// served is a world whose control plane is the real server.
type served struct {
	*world
	server  *framework.Server
	clients *clients.Clients
	tenant  logicalcluster.Name
	user    kubernetes.Interface
}

func newServed(t *testing.T) *served {
	t.Helper()
	physicalCluster(t)
	s := &served{server: framework.Start(t)}
	s.clients = s.server.Clients(t)
	compute := s.workspace(t, "compute")
	s.tenant = s.workspace(t, "tenant")
	s.user = s.server.Admin(t, s.tenant.Path())
	ctx := t.Context()
	if _, err := s.clients.Locations(logicalcluster.Root).Create(ctx, &schedulingv1alpha1.Location{
		ObjectMeta: metav1.ObjectMeta{Name: "everywhere"},
		Spec:       schedulingv1alpha1.LocationSpec{TargetWorkspace: "root:compute"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	target, err := s.clients.SyncTargets(compute).Create(ctx, &workloadv1alpha1.SyncTarget{ObjectMeta: metav1.ObjectMeta{Name: "us-east1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.world = newWorldFor(t, target.Name, target.UID, compute)
	s.namespace = s.id.namespace(namespaceKey{s.tenant, tenantNamespace})
	s.up = s.server.AdminConfig(t, "root")
	s.up.Host = s.server.URL + "/services/syncer/" + string(compute) + "/" + target.Name + "/" + string(target.UID)
	return s
}

func (s *served) workspace(t *testing.T, name string) logicalcluster.Name {
	t.Helper()
	client := s.clients.Workspaces(logicalcluster.Root)
	if _, err := client.Create(t.Context(), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var id logicalcluster.Name
	eventually(t, "workspace "+name+" is ready", func() bool {
		ws, err := client.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		id = logicalcluster.Name(ws.Spec.Cluster)
		return ws.Status.Phase == tenancyv1alpha1.WorkspacePhaseReady
	})
	return id
}

// application is what the tenant deploys.
func (s *served) application() {
	s.t.Helper()
	ctx := s.t.Context()
	must := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	labels := map[string]string{"app": "web"}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo.local/app:v1"}}}
	_, err := s.user.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenantNamespace}}, metav1.CreateOptions{})
	must(err)
	_, err = s.user.CoreV1().ConfigMaps(tenantNamespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"color": "blue"}}, metav1.CreateOptions{})
	must(err)
	_, err = s.user.CoreV1().Secrets(tenantNamespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "password"}, StringData: map[string]string{"p": "s"}}, metav1.CreateOptions{})
	must(err)
	_, err = s.user.CoreV1().Services(tenantNamespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	must(err)
	_, err = s.user.AppsV1().Deployments(tenantNamespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	must(err)
	_, err = s.user.CoreV1().Pods(tenantNamespace).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bare"}, Spec: spec}, metav1.CreateOptions{})
	must(err)
	spec.RestartPolicy = corev1.RestartPolicyNever
	_, err = s.user.BatchV1().Jobs(tenantNamespace).Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "once"}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}}}, metav1.CreateOptions{})
	must(err)
}

// readyEndpoints counts what the tenant sees.
func (s *served) readyEndpoints() int {
	list, err := s.user.DiscoveryV1().EndpointSlices(tenantNamespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
	if err != nil {
		return -1
	}
	ready := 0
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			if ptr.Deref(e.Conditions.Ready, false) {
				ready++
			}
		}
	}
	return ready
}

// The whole way through the real virtual workspace, there and back.
func TestAgainstTheServer(t *testing.T) {
	s := newServed(t)
	s.application()
	s.start()
	s.eventually("the application runs downstream", func() bool {
		return len(s.pods()) == 2 && s.downstream(configMaps, "settings") != nil && s.downstream(gvr("", "v1", "secrets"), "password") != nil &&
			s.downstream(pods, "bare") != nil && s.downstream(gvr("batch", "v1", "jobs"), "once") != nil
	})
	s.eventually("the tenant sees the pods", func() bool {
		list, err := s.user.CoreV1().Pods(tenantNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		return err == nil && len(list.Items) == 2
	})
	all := s.pods()
	for i, pod := range all {
		s.setReady(pod, i, true)
	}
	s.eventually("the tenant's deployment is available", func() bool {
		d, err := s.user.AppsV1().Deployments(tenantNamespace).Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && d.Status.AvailableReplicas == 2 && d.Status.ObservedGeneration == d.Generation
	})
	s.eventually("two endpoints are ready", func() bool { return s.readyEndpoints() == 2 })
	start := time.Now()
	s.setReady(all[0], 0, false)
	s.eventually("one endpoint is left", func() bool { return s.readyEndpoints() == 1 })
	t.Logf("a pod that became unready was out of the endpoints after %s", time.Since(start))

	before := s.uids()
	s.server.Restart(t)
	s.user = s.server.Admin(t, s.tenant.Path())
	s.eventually("a change after a restart of the server arrives", func() bool {
		_, err := s.user.CoreV1().ConfigMaps(tenantNamespace).Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"color": "red"}}, metav1.UpdateOptions{})
		return err == nil
	})
	s.eventually("the change is applied", func() bool { return field(s.downstream(configMaps, "settings"), "data", "color") == "red" })
	if diff := cmp.Diff(before, s.uids()); diff != "" {
		t.Errorf("uids over a restart of the server (-before +after):\n%s", diff)
	}

	// A deletion is an order only where a stream tells of it, so wait for that stream.
	later := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if _, err := s.user.CoreV1().Pods(tenantNamespace).Create(t.Context(), later, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("the stream of pods is back", func() bool { return s.downstream(pods, later.Name) != nil })
	mirror := names.Mirror(s.id.targetKey, all[1].Name)
	if err := s.user.CoreV1().Pods(tenantNamespace).Delete(t.Context(), mirror, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("the tenant cannot delete a mirrored pod: %v", err)
	}
	s.eventually("the pod is on its way out", func() bool {
		pod := s.downstream(pods, all[1].Name)
		return pod == nil || pod.GetDeletionTimestamp() != nil
	})
	for _, pod := range s.pods() {
		// There is no kubelet to end them.
		_ = s.kube.CoreV1().Pods(s.namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	}
	if err := s.user.CoreV1().Namespaces().Delete(t.Context(), tenantNamespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("the namespace is gone on both sides", func() bool {
		for _, pod := range s.pods() {
			_ = s.kube.CoreV1().Pods(s.namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		}
		_, err := s.user.CoreV1().Namespaces().Get(t.Context(), tenantNamespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err) && s.downstreamNamespace() == nil
	})
}
