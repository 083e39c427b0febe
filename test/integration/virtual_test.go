package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/version"
	"github.com/13eedeaf/kcp/test/framework"
)

var (
	podsResource       = corev1.SchemeGroupVersion.WithResource("pods")
	configMapsResource = corev1.SchemeGroupVersion.WithResource("configmaps")
	eventsResource     = corev1.SchemeGroupVersion.WithResource("events")
)

// agent is a syncer's side of its virtual workspace, with the identity of a service
// account that may sync one SyncTarget.
type agent struct {
	t      *testing.T
	config *rest.Config
	key    string
}

func newAgent(t *testing.T, s *framework.Server, cluster logicalcluster.Name, name string) *agent {
	t.Helper()
	ctx := t.Context()
	c := s.Clients(t)
	st, err := c.SyncTargets(cluster).Create(ctx, &workloadv1alpha1.SyncTarget{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kube, err := c.Kube(cluster)
	if err != nil {
		t.Fatal(err)
	}
	account := "syncer-" + name
	token := serviceAccountToken(t, kube, account)
	_, err = kube.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"workload.kcp.io"}, Resources: []string{"synctargets"}, ResourceNames: []string{name}, Verbs: []string{"sync"}}},
	}, metav1.CreateOptions{})
	fatal(t, err)
	_, err = kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: account}},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: account},
	}, metav1.CreateOptions{})
	fatal(t, err)
	config := rest.AnonymousClientConfig(s.AdminConfig(t, "root"))
	config.Host = fmt.Sprintf("%s/services/syncer/%s/%s/%s", s.URL, cluster, name, st.UID)
	config.BearerToken = token
	config.QPS = -1
	config.Wrap(introduce(version.Self()))
	return &agent{t: t, config: config, key: workloadv1alpha1.TargetKey(cluster, st.UID)}
}

// introduce has requests tell what their syncer is.
func introduce(peer version.Peer) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			peer.Tell(r.Header)
			return next.RoundTrip(r)
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// serviceAccountToken makes an account in namespace default and returns a token of it.
func serviceAccountToken(t *testing.T, kube kubernetes.Interface, name string) string {
	t.Helper()
	accounts := kube.CoreV1().ServiceAccounts("default")
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	fatal(t, err)
	token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	fatal(t, err)
	return token.Status.Token
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// in returns a client below /clusters/<cluster> of the virtual workspace.
func (a *agent) in(cluster logicalcluster.Name) dynamic.Interface {
	config := rest.CopyConfig(a.config)
	config.Host += "/clusters/" + string(cluster)
	return dynamic.NewForConfigOrDie(config)
}

// follow starts an informer over a stream and waits for its initial state.
func (a *agent) follow(gvr schema.GroupVersionResource) *informer.Informer[*unstructured.Unstructured] {
	a.t.Helper()
	i := informer.New[*unstructured.Unstructured](gvr.Resource, informer.Stream(a.in(logicalcluster.Wildcard).Resource(gvr).Watch), nil)
	go i.Run(a.t.Context())
	if !i.WaitForSync(a.t.Context()) {
		a.t.Fatalf("stream of %s did not begin", gvr.Resource)
	}
	return i
}

func (a *agent) shows(i *informer.Informer[*unstructured.Unstructured], want ...logicalcluster.Key) {
	a.t.Helper()
	framework.Eventually(a.t, fmt.Sprintf("stream shows %v", want), func(context.Context) (bool, string) {
		got := i.List()
		for _, key := range want {
			if _, ok := i.Get(key.Cluster, key.Namespace, key.Name); !ok {
				return false, fmt.Sprintf("lacks %s, has %d objects", key, len(got))
			}
		}
		return len(got) == len(want), fmt.Sprintf("has %d objects", len(got))
	})
}

func assign(t *testing.T, c *clients.Clients, cluster logicalcluster.Name, namespace, key string) {
	t.Helper()
	_, err := c.Assignments(cluster, namespace).Create(t.Context(), &schedulingv1alpha1.Assignment{
		ObjectMeta: metav1.ObjectMeta{Name: key, Finalizers: []string{workloadv1alpha1.SyncerFinalizer}},
		Spec:       schedulingv1alpha1.AssignmentSpec{Location: "default", Target: key, Placement: "default", State: schedulingv1alpha1.AssignmentActive},
	}, metav1.CreateOptions{})
	fatal(t, err)
}

func mirror(name, key string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": names.Mirror(key, name), "labels": map[string]any{workloadv1alpha1.TargetLabelKey: key}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "example.com/app"}}},
	}}
}

func wantForbidden(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("%s: %v, want Forbidden", what, err)
	}
}

// TestSyncerVirtualWorkspace has two syncers, the tenant's admin and the server meet over
// one namespace.
func TestSyncerVirtualWorkspace(t *testing.T) {
	s := framework.Start(t)
	ctx, c := t.Context(), s.Clients(t)
	ids := map[string]logicalcluster.Name{}
	for _, name := range []string{"fleet", "tenant"} {
		ids[name] = logicalcluster.Name(createWorkspace(t, c, logicalcluster.Root, name, "").Spec.Cluster)
	}
	tenant := ids["tenant"]
	east, west := newAgent(t, s, ids["fleet"], "east"), newAgent(t, s, ids["fleet"], "west")
	kube := s.Admin(t, "root:tenant")
	// The test assigns the namespace itself; the server places none of this prefix.
	for _, ns := range []string{"kube-shared", "other"} {
		_, err := kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
		fatal(t, err)
		_, err = kube.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"ns": ns}}, metav1.CreateOptions{})
		fatal(t, err)
	}
	assign(t, c, tenant, "kube-shared", east.key)

	settings := func(ns string) logicalcluster.Key {
		return logicalcluster.Key{Cluster: tenant, Namespace: ns, Name: "settings"}
	}
	eastMaps, westMaps := east.follow(configMapsResource), west.follow(configMapsResource)
	eastPods, westPods := east.follow(podsResource), west.follow(podsResource)
	east.shows(eastMaps, settings("kube-shared"))
	east.shows(east.follow(clients.AssignmentsResource), logicalcluster.Key{Cluster: tenant, Namespace: "kube-shared", Name: east.key})
	west.shows(westMaps)

	t.Run("an assignment shows older objects at once", func(t *testing.T) {
		assign(t, c, tenant, "kube-shared", west.key)
		west.shows(westMaps, settings("kube-shared"))
	})
	t.Run("mirrored pods", func(t *testing.T) { mirroredPods(t, tenant, east, west, eastPods, westPods, kube) })
	t.Run("reports and events", func(t *testing.T) { reportsAndEvents(t, tenant, east) })
	t.Run("heartbeat", func(t *testing.T) {
		client := dynamic.NewForConfigOrDie(east.config).Resource(clients.SyncTargetsResource)
		_, err := client.Patch(ctx, "east", types.MergePatchType, []byte(`{"status":{"syncerVersion":"v1"}}`), metav1.PatchOptions{}, "status")
		fatal(t, err)
		_, err = client.Patch(ctx, "east", types.MergePatchType, []byte(`{"status":{"conditions":[]}}`), metav1.PatchOptions{}, "status")
		wantForbidden(t, "patch of conditions", err)
		st, err := c.SyncTargets(ids["fleet"]).Get(ctx, "east", metav1.GetOptions{})
		if err != nil || st.Status.SyncerVersion != "v1" {
			t.Errorf("syncerVersion = %q, %v, want v1", st.Status.SyncerVersion, err)
		}
	})
	t.Run("users do not write what the system owns", func(t *testing.T) { systemOwned(t, s, tenant, east) })
	t.Run("letting go", func(t *testing.T) {
		client := east.in(tenant).Resource(clients.AssignmentsResource).Namespace("kube-shared")
		wantForbidden(t, "change of the state", second(client.Patch(ctx, east.key, types.MergePatchType, []byte(`{"spec":{"state":"Draining"}}`), metav1.PatchOptions{})))
		fatal(t, c.Assignments(tenant, "kube-shared").Delete(ctx, east.key, metav1.DeleteOptions{}))
		east.shows(eastMaps, settings("kube-shared")) // until the syncer lets go
		_, err := client.Patch(ctx, east.key, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		fatal(t, err)
		east.shows(eastMaps)
		west.shows(westMaps, settings("kube-shared"))
		_, err = east.in(tenant).Resource(podsResource).Namespace("kube-shared").Create(ctx, mirror("late", east.key), metav1.CreateOptions{})
		wantForbidden(t, "mirrored pod in a namespace that is no longer assigned", err)
	})
	t.Run("another's virtual workspace", func(t *testing.T) {
		config := rest.CopyConfig(east.config)
		config.Host = west.config.Host
		_, err := dynamic.NewForConfigOrDie(config).Resource(clients.SyncTargetsResource).Get(ctx, "west", metav1.GetOptions{})
		wantForbidden(t, "the virtual workspace of another target", err)

		// The tenant makes an account that is called like the syncer's.
		config = rest.CopyConfig(east.config)
		config.BearerToken = serviceAccountToken(t, kube, "syncer-east")
		_, err = dynamic.NewForConfigOrDie(config).Resource(clients.SyncTargetsResource).Get(ctx, "east", metav1.GetOptions{})
		wantForbidden(t, "the syncer's namesake in another workspace", err)
	})
}

func second[T any](_ T, err error) error { return err }

func mirroredPods(t *testing.T, tenant logicalcluster.Name, east, west *agent, eastPods, westPods *informer.Informer[*unstructured.Unstructured], kube kubernetes.Interface) {
	ctx := t.Context()
	own := east.in(tenant).Resource(podsResource).Namespace("kube-shared")
	name := names.Mirror(east.key, "web")
	_, err := own.Create(ctx, mirror("web", east.key), metav1.CreateOptions{})
	fatal(t, err)
	_, err = own.Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
	fatal(t, err)
	_, err = own.Apply(ctx, names.Mirror(east.key, "applied"), mirror("applied", east.key), metav1.ApplyOptions{FieldManager: "syncer", Force: true})
	fatal(t, err)
	east.shows(eastPods,
		logicalcluster.Key{Cluster: tenant, Namespace: "kube-shared", Name: name},
		logicalcluster.Key{Cluster: tenant, Namespace: "kube-shared", Name: names.Mirror(east.key, "applied")})
	west.shows(westPods)

	foreign := west.in(tenant).Resource(podsResource).Namespace("kube-shared")
	wantForbidden(t, "patch by another target", second(foreign.Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")))
	wantForbidden(t, "deletion by another target", foreign.Delete(ctx, name, metav1.DeleteOptions{}))
	wantForbidden(t, "mirrored pod in a namespace of nobody", second(east.in(tenant).Resource(podsResource).Namespace("other").Create(ctx, mirror("web", east.key), metav1.CreateOptions{})))

	pod, err := kube.CoreV1().Pods("kube-shared").Get(ctx, name, metav1.GetOptions{})
	fatal(t, err)
	if pod.Status.Phase != corev1.PodRunning {
		t.Errorf("phase = %q, want Running", pod.Status.Phase)
	}
	pod.Labels["more"] = "labels"
	wantForbidden(t, "update by an admin", second(kube.CoreV1().Pods("kube-shared").Update(ctx, pod, metav1.UpdateOptions{})))
	wantForbidden(t, "status update by an admin", second(kube.CoreV1().Pods("kube-shared").UpdateStatus(ctx, pod, metav1.UpdateOptions{})))
	wantForbidden(t, "apply by an admin", second(kube.CoreV1().Pods("kube-shared").Patch(ctx, name, types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{FieldManager: "x", Force: ptr.To(true)})))
	// Deleting restarts it, where it really runs.
	fatal(t, kube.CoreV1().Pods("kube-shared").Delete(ctx, name, metav1.DeleteOptions{}))
	fatal(t, own.Delete(ctx, names.Mirror(east.key, "applied"), metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	east.shows(eastPods)
}

func reportsAndEvents(t *testing.T, tenant logicalcluster.Name, east *agent) {
	ctx := t.Context()
	report := func(key string) *unstructured.Unstructured {
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&workloadv1alpha1.SyncReport{
			TypeMeta:   metav1.TypeMeta{APIVersion: "workload.kcp.io/v1alpha1", Kind: "SyncReport"},
			ObjectMeta: metav1.ObjectMeta{Name: names.Report(east.key, "configmaps", "", "settings"), Namespace: "kube-shared"},
			Spec:       workloadv1alpha1.SyncReportSpec{Target: key, Version: "v1", Resource: "configmaps", Name: "settings", UID: "x"},
			Report:     workloadv1alpha1.SyncReportData{Synced: true},
		})
		fatal(t, err)
		return &unstructured.Unstructured{Object: o}
	}
	reports := east.in(tenant).Resource(clients.SyncReportsResource).Namespace("kube-shared")
	wantForbidden(t, "report in another target's name", second(reports.Create(ctx, report("t1"), metav1.CreateOptions{})))
	o := report(east.key)
	_, err := reports.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "syncer", Force: true})
	fatal(t, err)
	_, err = reports.Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"report":{"message":"applied"}}`), metav1.PatchOptions{})
	fatal(t, err)
	got, err := reports.Get(ctx, o.GetName(), metav1.GetOptions{})
	fatal(t, err)
	if message, _, _ := unstructured.NestedString(got.Object, "report", "message"); message != "applied" {
		t.Errorf("message = %q, want applied", message)
	}
	event := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": "settings.1"}, "reason": "Synced", "type": "Normal",
		"involvedObject": map[string]any{"kind": "ConfigMap", "namespace": "kube-shared", "name": "settings"},
	}}
	_, err = east.in(tenant).Resource(eventsResource).Namespace("kube-shared").Create(ctx, event, metav1.CreateOptions{})
	fatal(t, err)
	_, err = east.in(tenant).Resource(eventsResource).Namespace("other").Create(ctx, event, metav1.CreateOptions{})
	wantForbidden(t, "event in a namespace of nobody", err)
}

// systemOwned tries as an administrator of the server, who may do anything else.
func systemOwned(t *testing.T, s *framework.Server, tenant logicalcluster.Name, east *agent) {
	ctx := t.Context()
	patch := []byte(`{"spec":{"state":"Draining"}}`)
	for name, impersonate := range map[string]rest.ImpersonationConfig{
		"an administrator":               {},
		"an administrator as the server": {UserName: "system:apiserver", Groups: []string{"system:masters"}},
		"an administrator as alice":      {UserName: "alice", Groups: []string{"system:masters"}},
	} {
		config := s.AdminConfig(t, tenant.Path())
		config.Impersonate = impersonate
		client := dynamic.NewForConfigOrDie(config)
		_, err := client.Resource(clients.AssignmentsResource).Namespace("kube-shared").Patch(ctx, east.key, types.MergePatchType, patch, metav1.PatchOptions{})
		wantForbidden(t, "patch of an assignment by "+name, err)
		_, err = client.Resource(clients.AssignmentsResource).Namespace("kube-shared").Patch(ctx, east.key, types.ApplyPatchType, mustJSON(t, map[string]any{
			"apiVersion": "scheduling.kcp.io/v1alpha1", "kind": "Assignment", "metadata": map[string]any{"labels": map[string]any{"a": "b"}},
		}), metav1.PatchOptions{FieldManager: "x"})
		wantForbidden(t, "apply to an assignment by "+name, err)
		wantForbidden(t, "deletion of all assignments by "+name, client.Resource(clients.AssignmentsResource).Namespace("kube-shared").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
		_, err = client.Resource(podsResource).Namespace("kube-shared").Create(ctx, mirror("forged", east.key), metav1.CreateOptions{})
		wantForbidden(t, "forged mirrored pod by "+name, err)
		if _, err := client.Resource(clients.AssignmentsResource).Namespace("kube-shared").Get(ctx, east.key, metav1.GetOptions{}); err != nil {
			t.Errorf("reading an assignment as %s: %v", name, err)
		}
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	fatal(t, err)
	return b
}
