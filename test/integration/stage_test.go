package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/test/framework"
)

// stage is a server with a compute workspace, a tenant's workspace, and the test in the
// roles of syncers and gateways.
type stage struct {
	t       *testing.T
	server  *framework.Server
	clients *clients.Clients
	compute logicalcluster.Name
	tenant  logicalcluster.Name
	kube    kubernetes.Interface

	// silence stops all heartbeats.
	silence func()
}

func newStage(t *testing.T, opts ...framework.Option) *stage {
	t.Helper()
	s := &stage{t: t, server: framework.Start(t, opts...)}
	s.clients = s.server.Clients(t)
	s.compute = s.workspace("fleet")
	s.tenant = s.workspace("tenant")
	var err error
	if s.kube, err = s.clients.Kube(s.tenant); err != nil {
		t.Fatal(err)
	}
	_, err = s.clients.Locations(logicalcluster.Root).Create(t.Context(), &schedulingv1alpha1.Location{
		ObjectMeta: metav1.ObjectMeta{Name: "everywhere"},
		Spec:       schedulingv1alpha1.LocationSpec{TargetWorkspace: "root:fleet"},
	}, metav1.CreateOptions{})
	s.must(err)
	for _, name := range []string{"east", "west"} {
		_, err := s.clients.SyncTargets(s.compute).Create(t.Context(), &workloadv1alpha1.SyncTarget{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		s.must(err)
	}
	s.speak()
	t.Cleanup(func() { s.silence() })
	for _, name := range []string{"east", "west"} {
		framework.Eventually(t, name+" is ready", func(context.Context) (bool, string) {
			conditions := s.target(name).Status.Conditions
			return meta.IsStatusConditionTrue(conditions, workloadv1alpha1.SyncTargetReady), fmt.Sprintf("%+v", conditions)
		})
	}
	return s
}

// speak begins the heartbeats of all syncers, or of those named.
func (s *stage) speak(names ...string) {
	if len(names) == 0 {
		names = []string{"east", "west"}
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	var beating sync.WaitGroup
	beating.Go(func() { s.beat(ctx, s.clients, names) })
	s.silence = func() { cancel(); beating.Wait() }
}

// restart stops the server and starts it again; its own clients are made anew.
func (s *stage) restart() {
	s.t.Helper()
	s.silence()
	s.server.Restart(s.t)
	s.clients = s.server.Clients(s.t)
	var err error
	s.kube, err = s.clients.Kube(s.tenant)
	s.must(err)
	s.speak()
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) workspace(name string) logicalcluster.Name {
	s.t.Helper()
	_, err := s.clients.Workspaces(logicalcluster.Root).Create(s.t.Context(), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	s.must(err)
	var id logicalcluster.Name
	framework.Eventually(s.t, "workspace "+name+" is ready", func(ctx context.Context) (bool, string) {
		ws, err := s.clients.Workspaces(logicalcluster.Root).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		id = logicalcluster.Name(ws.Spec.Cluster)
		return ws.Status.Phase == tenancyv1alpha1.WorkspacePhaseReady, string(ws.Status.Phase)
	})
	return id
}

// beat heartbeats for syncers until ctx ends.
func (s *stage) beat(ctx context.Context, c *clients.Clients, names []string) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, name := range names {
			patch := fmt.Appendf(nil, `{"status":{"lastSyncerHeartbeatTime":%q}}`, time.Now().UTC().Format(time.RFC3339))
			_, err := c.SyncTargets(s.compute).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
			if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
				s.t.Errorf("heartbeat of %s: %v", name, err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *stage) target(name string) *workloadv1alpha1.SyncTarget {
	s.t.Helper()
	st, err := s.clients.SyncTargets(s.compute).Get(s.t.Context(), name, metav1.GetOptions{})
	s.must(err)
	return st
}

func (s *stage) key(name string) string {
	s.t.Helper()
	return workloadv1alpha1.TargetKey(s.compute, s.target(name).UID)
}

func (s *stage) patchTarget(name, patch string) {
	s.t.Helper()
	_, err := s.clients.SyncTargets(s.compute).Patch(s.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.must(err)
}

// application creates a namespace with a Deployment, a Service and an Ingress.
func (s *stage) application(namespace string) {
	s.t.Helper()
	ctx := s.t.Context()
	_, err := s.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	s.must(err)
	labels := map[string]string{"app": "web"}
	_, err = s.kube.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = s.kube.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = s.kube.NetworkingV1().Ingresses(namespace).Create(ctx, &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}},
		}},
	}, metav1.CreateOptions{})
	s.must(err)
}

// assignments waits until the Assignments of a namespace are described by want: one
// line each, sorted by SyncTarget name: name, state, phase, whether it is going.
func (s *stage) assignments(namespace string, want ...string) map[string]*schedulingv1alpha1.Assignment {
	s.t.Helper()
	names := map[string]string{}
	for _, name := range []string{"east", "west"} {
		names[s.key(name)] = name
	}
	out := map[string]*schedulingv1alpha1.Assignment{}
	framework.Eventually(s.t, strings.Join(want, ", "), func(ctx context.Context) (bool, string) {
		list, err := s.clients.Assignments(s.tenant, namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		clear(out)
		got := []string{}
		for i := range list.Items {
			a := &list.Items[i]
			out[names[a.Name]] = a
			line := fmt.Sprintf("%s %s %s", names[a.Name], a.Spec.State, a.Status.Phase)
			if a.DeletionTimestamp != nil {
				line = names[a.Name] + " going"
			}
			got = append(got, line)
		}
		slices.Sort(got)
		return slices.Equal(got, want), fmt.Sprintf("%v", got)
	})
	return out
}

// report speaks as the syncer of a target: so many pods of the Deployment are available.
func (s *stage) report(name, namespace string, available int32) {
	s.t.Helper()
	ctx := s.t.Context()
	d := s.deployment(namespace)
	raw, err := json.Marshal(appsv1.DeploymentStatus{
		ObservedGeneration: 7, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: available, AvailableReplicas: available,
	})
	s.must(err)
	s.write(name, namespace, &workloadv1alpha1.SyncReport{
		ObjectMeta: metav1.ObjectMeta{Name: s.key(name) + "-deployments-web"},
		Spec: workloadv1alpha1.SyncReportSpec{
			Target: s.key(name), Group: "apps", Version: "v1", Resource: "deployments", Name: "web", UID: string(d.UID),
		},
		Report: workloadv1alpha1.SyncReportData{
			Synced: true, AppliedGeneration: d.Generation, ObservedGeneration: d.Generation,
			Status: &runtime.RawExtension{Raw: raw},
		},
	})
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-" + s.key(name),
			Labels: map[string]string{
				discoveryv1.LabelServiceName:    "web",
				workloadv1alpha1.TargetLabelKey: s.key(name),
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}}},
	}
	if _, err := s.kube.DiscoveryV1().EndpointSlices(namespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
}

func (s *stage) write(name, namespace string, r *workloadv1alpha1.SyncReport) {
	s.t.Helper()
	ctx := s.t.Context()
	client := s.clients.SyncReports(s.tenant, namespace)
	_, err := client.Create(ctx, r, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var old *workloadv1alpha1.SyncReport
		old, err = client.Get(ctx, r.Name, metav1.GetOptions{})
		s.must(err)
		r.ResourceVersion = old.ResourceVersion
		_, err = client.Update(ctx, r, metav1.UpdateOptions{})
	}
	if err != nil {
		s.t.Fatalf("report of %s: %v", name, err)
	}
}

// renew speaks as the gateway: it lives for the next minutes.
func (s *stage) renew() {
	s.t.Helper()
	_, err := s.clients.GatewayInstances(logicalcluster.Root).Create(s.t.Context(), &networkingv1alpha1.GatewayInstance{
		ObjectMeta: metav1.ObjectMeta{Name: gateway},
		Spec: networkingv1alpha1.GatewayInstanceSpec{
			Addresses: []string{"192.0.2.7"}, RenewTime: metav1.NowMicro(), LeaseDurationSeconds: 600,
		},
	}, metav1.CreateOptions{})
	s.must(err)
}

// route speaks as the gateway of the Assignments that stand now: it sends to those that
// are active, and so many requests are in flight to the others.
func (s *stage) route(namespace string, inFlight int64) {
	s.t.Helper()
	ctx := s.t.Context()
	list, err := s.clients.Assignments(s.tenant, namespace).List(ctx, metav1.ListOptions{})
	s.must(err)
	r := &networkingv1alpha1.GatewayReport{ObjectMeta: metav1.ObjectMeta{Name: gateway}, Spec: networkingv1alpha1.GatewayReportSpec{TableRevision: 1}}
	for _, a := range list.Items {
		entry := networkingv1alpha1.GatewayTargetReport{Target: a.Name, AssignmentGeneration: a.Generation, Accepting: true, Endpoints: 2, Backends: 1, HealthyBackends: 1}
		if a.Spec.State == schedulingv1alpha1.AssignmentDraining {
			entry.Accepting, entry.InFlight = false, inFlight
		}
		r.Spec.Targets = append(r.Spec.Targets, entry)
	}
	client := s.clients.GatewayReports(s.tenant, namespace)
	old, err := client.Get(ctx, gateway, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(ctx, r, metav1.CreateOptions{})
		s.must(err)
		return
	}
	s.must(err)
	r.ResourceVersion = old.ResourceVersion
	_, err = client.Update(ctx, r, metav1.UpdateOptions{})
	s.must(err)
}

// removed speaks as the syncer of a target: its copy is gone.
func (s *stage) removed(name, namespace string) {
	s.t.Helper()
	_, err := s.clients.Assignments(s.tenant, namespace).Patch(s.t.Context(), s.key(name), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	s.must(err)
}

func (s *stage) deployment(namespace string) *appsv1.Deployment {
	s.t.Helper()
	d, err := s.kube.AppsV1().Deployments(namespace).Get(s.t.Context(), "web", metav1.GetOptions{})
	s.must(err)
	return d
}

// available waits until the Deployment's status counts so many replicas and available
// ones.
func (s *stage) available(namespace string, replicas, available int32) {
	s.t.Helper()
	framework.Eventually(s.t, fmt.Sprintf("%d replicas, %d available", replicas, available), func(context.Context) (bool, string) {
		d := s.deployment(namespace)
		return d.Status.Replicas == replicas && d.Status.AvailableReplicas == available && d.Status.ObservedGeneration == d.Generation,
			fmt.Sprintf("%+v", d.Status)
	})
}

// drain waits until a SyncTarget's drain has a state, and returns it.
func (s *stage) drain(name string, state workloadv1alpha1.DrainState, stages ...string) *workloadv1alpha1.DrainStatus {
	s.t.Helper()
	var drain *workloadv1alpha1.DrainStatus
	framework.Eventually(s.t, fmt.Sprintf("drain of %s is %s %v", name, state, stages), func(context.Context) (bool, string) {
		drain = s.target(name).Status.Drain
		if drain == nil {
			return false, "no drain"
		}
		var got []string
		for _, n := range drain.Namespaces {
			got = append(got, n.Stage)
		}
		return drain.State == state && slices.Equal(got, stages), fmt.Sprintf("%+v", *drain)
	})
	return drain
}

// targetDeleted deletes the SyncTarget that holds everything: it stays until all has
// moved.
func (s *stage) targetDeleted() {
	s.t.Helper()
	s.patchTarget("east", `{"spec":{"evictAfter":null,"unschedulable":null}}`)
	s.must(s.clients.SyncTargets(s.compute).Delete(s.t.Context(), "west", metav1.DeleteOptions{}))
	east := s.key("east")
	framework.Eventually(s.t, "both namespaces are given to east", func(ctx context.Context) (bool, string) {
		for _, namespace := range []string{namespaceWeb, "other"} {
			if _, err := s.clients.Assignments(s.tenant, namespace).Get(ctx, east, metav1.GetOptions{}); err != nil {
				return false, err.Error()
			}
		}
		return true, ""
	})
	for _, namespace := range []string{namespaceWeb, "other"} {
		s.report("east", namespace, 2)
		s.route(namespace, 0)
		s.assignments(namespace, "east Active Serving", "west Draining Draining")
		s.route(namespace, 0)
		s.assignments(namespace, "east Active Serving", "west going")
	}
	if s.target("west").DeletionTimestamp == nil {
		s.t.Error("west is not being deleted")
	}
	for _, namespace := range []string{namespaceWeb, "other"} {
		s.removed("west", namespace)
	}
	framework.Eventually(s.t, "west is gone", func(ctx context.Context) (bool, string) {
		_, err := s.clients.SyncTargets(s.compute).Get(ctx, "west", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprintf("%v", err)
	})
}

// assigned waits until a namespace is assigned to a target.
func (s *stage) assigned(namespace, target string) {
	s.t.Helper()
	framework.Eventually(s.t, namespace+" is assigned to "+target, func(ctx context.Context) (bool, string) {
		_, err := s.clients.Assignments(s.tenant, namespace).Get(ctx, s.key(target), metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
}
