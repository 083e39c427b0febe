package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/version"
	"github.com/13eedeaf/kcp/test/framework"
)

// TestInvalidObjects: what cannot work is refused with an error that names the field, and
// nothing is stored.
func TestInvalidObjects(t *testing.T) {
	s := framework.Start(t)
	alice := login(t, s, "alice")
	own, _ := alice.home()
	const (
		scheduling = "/apis/scheduling.kcp.io/v1alpha1/"
		workload   = "/apis/workload.kcp.io/v1alpha1/"
		tenancy    = "/apis/tenancy.kcp.io/v1alpha1/"
	)
	at := "/clusters/" + string(own)
	kinds := map[string]string{scheduling + "placements": "Placement", scheduling + "locations": "Location", workload + "synctargets": "SyncTarget", tenancy + "workspaces": "Workspace"}
	body := func(resource, name, rest string) string {
		group := strings.TrimSuffix(strings.TrimPrefix(resource[:strings.LastIndex(resource, "/")], "/apis/"), "/")
		return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}%s}`, group, kinds[resource], name, rest)
	}

	for name, tc := range map[string]struct {
		resource, rest, wantMessage string
		wantCode                    int
	}{
		"evictAfter that is no time": {
			workload + "synctargets", `,"spec":{"evictAfter":"tomorrow"}`,
			`spec.evictAfter: Invalid value: "tomorrow"`, http.StatusUnprocessableEntity,
		},
		"evictAfter that is a number": {
			workload + "synctargets", `,"spec":{"evictAfter":1767225600}`,
			`spec.evictAfter: Invalid value: "int64"`, http.StatusUnprocessableEntity,
		},
		// The schema takes this for a time; the server's types do not.
		"evictAfter in small letters": {
			workload + "synctargets", `,"spec":{"evictAfter":"2026-01-02t03:04:05z"}`,
			`spec.evictAfter: Invalid value: "2026-01-02t03:04:05z"`, http.StatusUnprocessableEntity,
		},
		"a duration in words": {
			scheduling + "placements", `,"spec":{"unreachableToleration":"5 minutes"}`,
			`spec.unreachableToleration: Invalid value: "5 minutes"`, http.StatusUnprocessableEntity,
		},
		"two bad durations": {
			scheduling + "placements", `,"spec":{"unreachableToleration":"soon","drainDeadline":"later"}`,
			`[spec.drainDeadline: Invalid value: "later"`, http.StatusUnprocessableEntity,
		},
		"a negative deadline": {
			scheduling + "placements", `,"spec":{"drainDeadline":"-1s"}`,
			`spec.drainDeadline: Invalid value: "-1s": must not be negative`, http.StatusUnprocessableEntity,
		},
		"an operator that there is not": {
			scheduling + "placements", `,"spec":{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Equals","values":["b"]}]}}`,
			`spec.namespaceSelector.matchExpressions[0].operator: Unsupported value: "Equals": supported values: ["In" "NotIn" "Exists" "DoesNotExist"]`, http.StatusUnprocessableEntity,
		},
		"an operator without values": {
			scheduling + "placements", `,"spec":{"locationSelectors":[{},{"matchExpressions":[{"key":"a","operator":"In"}]}]}`,
			`spec.locationSelectors[1].matchExpressions[0].values: Required value`, http.StatusUnprocessableEntity,
		},
		"a label that is none": {
			scheduling + "locations", `,"spec":{"instanceSelector":{"matchLabels":{"not a label":"x"}}}`,
			`spec.instanceSelector.matchLabels: Invalid value: "not a label"`, http.StatusUnprocessableEntity,
		},
		"a label value that is none": {
			scheduling + "locations", `,"spec":{"instanceSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["b","not a value"]}]}}`,
			`spec.instanceSelector.matchExpressions[0].values[1]: Invalid value: "not a value"`, http.StatusUnprocessableEntity,
		},
		"a selector that is a string": {
			scheduling + "locations", `,"spec":{"instanceSelector":"a=b"}`,
			`spec.instanceSelector: Invalid value: "string"`, http.StatusUnprocessableEntity,
		},
		"a target workspace that is no path": {
			scheduling + "locations", `,"spec":{"targetWorkspace":"root/compute"}`,
			`spec.targetWorkspace: Invalid value: "root/compute": workspace path "root/compute" is malformed`, http.StatusUnprocessableEntity,
		},
		"a target workspace that may not be used": {
			scheduling + "locations", `,"spec":{"targetWorkspace":"root"}`,
			`spec.targetWorkspace: you may not use the SyncTargets of "root": its owner can grant verb "use" on synctargets.workload.kcp.io there`, http.StatusForbidden,
		},
		"a workspace type that there is not": {
			tenancy + "workspaces", `,"spec":{"type":{"name":"nope"}}`,
			`there is no workspace type "nope" in "root"`, http.StatusForbidden,
		},
		"a workspace type that is the server's": {
			tenancy + "workspaces", `,"spec":{"type":{"name":"home"}}`,
			`workspaces of type "home" are made by the server only`, http.StatusForbidden,
		},
		"a workspace type that is not allowed here": {
			tenancy + "workspaces", `,"spec":{"type":{"name":"organization"}}`,
			`a workspace of type "organization" stands below one of type "root"`, http.StatusForbidden,
		},
		"a workspace type of somebody else": {
			tenancy + "workspaces", `,"spec":{"type":{"name":"universal","path":"root:nowhere"}}`,
			`its path "root:nowhere" is not the parent workspace or one above it`, http.StatusForbidden,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := alice.do(http.MethodPost, at+tc.resource, body(tc.resource, "bad", tc.rest))
			if r.code != tc.wantCode || !strings.Contains(r.status.Message, tc.wantMessage) {
				t.Errorf("create: %d %s, want %d %s", r.code, r.body, tc.wantCode, tc.wantMessage)
			}
			if r := alice.do(http.MethodGet, at+tc.resource+"/bad", ""); r.code != http.StatusNotFound {
				t.Errorf("it was stored: %d %s", r.code, r.body)
			}
			r = alice.do(http.MethodPatch, at+tc.resource+"/bad?fieldManager=test", body(tc.resource, "bad", tc.rest), "Content-Type", string(types.ApplyYAMLPatchType))
			// Apply finds a wrong type before there is an object to validate; upstream calls it 500.
			if wrongType := r.code == http.StatusInternalServerError && strings.Contains(r.status.Message, ".spec.instanceSelector: expected map"); r.code != tc.wantCode && !wrongType {
				t.Errorf("apply: %d %s, want %d", r.code, r.body, tc.wantCode)
			}
			if kinds[tc.resource] == "Workspace" {
				return
			}
			name := "good"
			if r := alice.do(http.MethodPost, at+tc.resource, body(tc.resource, name, `,"spec":{}`)); r.code != http.StatusCreated && r.code != http.StatusConflict {
				t.Fatalf("a good one: %d %s", r.code, r.body)
			}
			r = alice.do(http.MethodPatch, at+tc.resource+"/"+name, "{"+tc.rest[1:]+"}", "Content-Type", string(types.MergePatchType))
			if r.code != tc.wantCode {
				t.Errorf("patch: %d %s, want %d", r.code, r.body, tc.wantCode)
			}
		})
	}

	for name, want := range map[string]string{
		"Upper": "metadata.name", "a.b": "a workspace name is a DNS label", "a_b": "metadata.name", "": "name or generateName is required",
		strings.Repeat("a", 64): "a workspace name is a DNS label", "a:b": "metadata.name", "..": "metadata.name",
	} {
		r := alice.do(http.MethodPost, at+tenancy+"workspaces", body(tenancy+"workspaces", name, ""))
		if r.code < 400 || r.code >= 500 || !strings.Contains(r.status.Message, want) {
			t.Errorf("workspace %q: %d %s, want %q", name, r.code, r.body, want)
		}
	}

	// A status is read by the server just as a spec is.
	t.Run("a status", func(t *testing.T) {
		for status, want := range map[string]string{
			`{"lastSyncerHeartbeatTime":"2026-01-02t03:04:05z"}`: "status.lastSyncerHeartbeatTime",
			`{"allocatable":{"cpu":"1e1.5"}}`:                    "status.allocatable.cpu",
			`{"capacity":{"memory":"1e99999999999999999999"}}`:   "status.capacity.memory",
			`{"namespaces":3000000000}`:                          "must be of type integer with format int32 in namespaces",
		} {
			r := alice.do(http.MethodPatch, at+workload+"synctargets/good/status", `{"status":`+status+`}`, "Content-Type", string(types.MergePatchType))
			if r.code != http.StatusUnprocessableEntity || !strings.Contains(r.status.Message, want) {
				t.Errorf("%s: %d %s, want 422 %s", status, r.code, r.body, want)
			}
		}
	})

	t.Run("a server restarts with all that was stored", func(t *testing.T) {
		s.Restart(t)
		if r := alice.do(http.MethodGet, at+workload+"synctargets/good", ""); r.code != http.StatusOK {
			t.Errorf("%d %s", r.code, r.body)
		}
	})
}

// TestWorkspaceInDeletion: what is being deleted takes nothing new, by anybody.
func TestWorkspaceInDeletion(t *testing.T) {
	s := framework.Start(t)
	alice := login(t, s, "alice")
	own, _ := alice.home()
	c := alice.clients()
	createWorkspace(t, c, own, "going", "")
	going := own.Path().Join("going")
	cluster := logicalcluster.Name(going)
	_, err := c.Core(cluster).ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}}}, metav1.CreateOptions{})
	must(t, err)
	must(t, c.Workspaces(own).Delete(t.Context(), "going", metav1.DeleteOptions{}))
	want := fmt.Sprintf("workspace %q is being deleted", going)
	for who, clients := range map[string]interface {
		create(name string) error
	}{
		"owner": creator{t, alice, cluster},
		"admin": creator{t, &person{t: t, server: s, config: adminConfig(t, s)}, cluster},
	} {
		framework.Eventually(t, who+" is refused", func(context.Context) (bool, string) {
			err := clients.create("child")
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), want), fmt.Sprint(err)
		})
	}
	_, err = c.Core(cluster).ConfigMaps("default").Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	must(t, err)
}

// creator creates a workspace and a config map, as one person.
type creator struct {
	t       *testing.T
	p       *person
	cluster logicalcluster.Name
}

func (c creator) create(name string) error {
	clients := c.p.clients()
	if _, err := clients.Workspaces(c.cluster).Create(c.t.Context(), newWorkspace(name, ""), metav1.CreateOptions{}); err == nil {
		return fmt.Errorf("workspace created")
	}
	_, err := clients.Core(c.cluster).ConfigMaps("default").Create(c.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

func adminConfig(t *testing.T, s *framework.Server) *rest.Config {
	t.Helper()
	config := s.AdminConfig(t, "root")
	config.Host = s.URL
	return config
}

// TestSystemOwnedObjects: nobody but their owner writes Assignments, reports, gateway
// records and mirrored objects, whatever they may do otherwise, and in no way.
func TestSystemOwnedObjects(t *testing.T) {
	s := framework.Start(t)
	alice := login(t, s, "alice")
	own, ownID := alice.home()
	server := s.Clients(t)
	// A real target at a real Location: the scheduler lets the Assignment stand.
	st, err := alice.clients().SyncTargets(own).Create(t.Context(), &workloadv1alpha1.SyncTarget{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}, metav1.CreateOptions{})
	must(t, err)
	createAs(t, alice.clients().Locations(own).Create, &schedulingv1alpha1.Location{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	createAs(t, alice.kube(own).CoreV1().Services("default").Create, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	framework.Eventually(t, "the target is known", func(ctx context.Context) (bool, string) {
		location, err := alice.clients().Locations(own).Get(ctx, "default", metav1.GetOptions{})
		return err == nil && location.Status.Instances != nil && *location.Status.Instances == 1, fmt.Sprint(err)
	})
	key := workloadv1alpha1.TargetKey(ownID, st.UID)
	label := map[string]string{workloadv1alpha1.TargetLabelKey: key}
	createAs(t, server.Assignments(own, "default").Create, &schedulingv1alpha1.Assignment{
		// It stays until its syncer lets it go, whatever the scheduler thinks of it.
		ObjectMeta: metav1.ObjectMeta{Name: key, Finalizers: []string{workloadv1alpha1.SyncerFinalizer}},
		Spec:       schedulingv1alpha1.AssignmentSpec{Location: "default", Target: key, Placement: "default", State: schedulingv1alpha1.AssignmentActive},
	})
	createAs(t, server.SyncReports(own, "default").Create, &workloadv1alpha1.SyncReport{
		ObjectMeta: metav1.ObjectMeta{Name: key + "-x"}, Spec: workloadv1alpha1.SyncReportSpec{Target: key, Version: "v1", Resource: "services", Name: "x", UID: "u"},
	})
	createAs(t, server.GatewayReports(own, "default").Create, &networkingv1alpha1.GatewayReport{ObjectMeta: metav1.ObjectMeta{Name: "g"}, Spec: networkingv1alpha1.GatewayReportSpec{Targets: []networkingv1alpha1.GatewayTargetReport{}}})
	createAs(t, server.GatewayInstances(own).Create, &networkingv1alpha1.GatewayInstance{ObjectMeta: metav1.ObjectMeta{Name: "g"}, Spec: networkingv1alpha1.GatewayInstanceSpec{Addresses: []string{"192.0.2.1"}, RenewTime: metav1.NowMicro(), LeaseDurationSeconds: 30}})
	backend := &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "x", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	createAs(t, alice.kube(own).NetworkingV1().Ingresses("default").Create, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: networkingv1.IngressSpec{DefaultBackend: backend}})
	framework.Eventually(t, "the server has spoken of the Ingress", func(ctx context.Context) (bool, string) {
		_, err := alice.clients().HostClaims(own, "default").Get(ctx, "web", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/app"}}}
	mirrored := names.Mirror(key, "mine")
	createAs(t, server.Core(own).Pods("default").Create, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: mirrored, Labels: label}, Spec: spec})
	kube, err := server.Kube(own)
	must(t, err)
	createAs(t, kube.DiscoveryV1().EndpointSlices("default").Create, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: mirrored, Labels: label}, AddressType: discoveryv1.AddressTypeIPv4})

	makeServiceAccount(t, alice.kube(own), "default", "robot")
	bindCluster(t, alice.kube(own), "cluster-admin", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "robot"})
	token, err := alice.kube(own).CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	root := &person{t: t, server: s, config: adminConfig(t, s)}
	people := map[string]*person{
		"tenant": alice, "service account": bearer(t, s, token.Status.Token), "administrator": root,
		"administrator as the server": root.as(rest.ImpersonationConfig{UserName: "system:apiserver", Groups: []string{"system:masters"}}),
	}
	in := "/clusters/" + string(own)
	const merge, apply, jsonPatch, strategic = "application/merge-patch+json", "application/apply-patch+yaml", "application/json-patch+json", "application/strategic-merge-patch+json"

	for _, resource := range []struct{ path, name, kind, version string }{
		{"/apis/scheduling.kcp.io/v1alpha1/namespaces/default/assignments", key, "Assignment", "scheduling.kcp.io/v1alpha1"},
		{"/apis/workload.kcp.io/v1alpha1/namespaces/default/syncreports", key + "-x", "SyncReport", "workload.kcp.io/v1alpha1"},
		{"/apis/networking.kcp.io/v1alpha1/namespaces/default/gatewayreports", "g", "GatewayReport", "networking.kcp.io/v1alpha1"},
		{"/apis/networking.kcp.io/v1alpha1/gatewayinstances", "g", "GatewayInstance", "networking.kcp.io/v1alpha1"},
		{"/apis/networking.kcp.io/v1alpha1/namespaces/default/hostclaims", "web", "HostClaim", "networking.kcp.io/v1alpha1"},
	} {
		t.Run(resource.kind, func(t *testing.T) {
			one := in + resource.path + "/" + resource.name
			before := alice.do(http.MethodGet, one, "")
			if before.code != http.StatusOK {
				t.Fatalf("a tenant reads it: %d %s", before.code, before.body)
			}
			object := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"labels":{"a":"b"}}}`, resource.version, resource.kind, resource.name)
			for who, p := range people {
				for what, r := range map[string]response{
					"create":           p.do(http.MethodPost, in+resource.path, strings.Replace(before.body, resource.name, "new", 1)),
					"create dry":       p.do(http.MethodPost, in+resource.path+"?dryRun=All", object),
					"update":           p.do(http.MethodPut, one, before.body),
					"merge patch":      p.do(http.MethodPatch, one, `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", merge),
					"json patch":       p.do(http.MethodPatch, one, `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, "Content-Type", jsonPatch),
					"apply":            p.do(http.MethodPatch, one+"?fieldManager=x&force=true", object, "Content-Type", apply),
					"apply new":        p.do(http.MethodPatch, in+resource.path+"/new?fieldManager=x", strings.Replace(object, resource.name, "new", 1), "Content-Type", apply),
					"status":           p.do(http.MethodPatch, one+"/status", `{"status":{"phase":"Serving"}}`, "Content-Type", merge),
					"delete":           p.do(http.MethodDelete, one, ""),
					"deletecollection": p.do(http.MethodDelete, in+resource.path, ""),
				} {
					if r.code != http.StatusForbidden || !strings.Contains(r.status.Message, "objects of this kind are written by") {
						t.Errorf("%s by %s: %d %s, want 403", what, who, r.code, r.body)
					}
				}
			}
			if diff := cmp.Diff(written(t, before), written(t, alice.do(http.MethodGet, one, ""))); diff != "" {
				t.Errorf("it changed (-before +after):\n%s", diff)
			}
		})
	}

	for _, resource := range []struct{ path, kind, version, content string }{
		{"/api/v1/namespaces/default/pods", "Pod", "v1", `"spec":{"containers":[{"name":"c","image":"example.com/app"}]}`},
		{"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", "EndpointSlice", "discovery.k8s.io/v1", `"addressType":"IPv4","endpoints":[{"addresses":["192.0.2.1"]}]`},
	} {
		t.Run("mirrored "+resource.kind, func(t *testing.T) {
			object := func(name string, labels map[string]string) string {
				l, err := json.Marshal(labels)
				must(t, err)
				return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"labels":%s},%s}`, resource.version, resource.kind, name, l, resource.content)
			}
			all := in + resource.path
			if r := alice.do(http.MethodPost, all, object("own", nil)); r.code != http.StatusCreated {
				t.Fatalf("an own one: %d %s", r.code, r.body)
			}
			one, plain := all+"/"+mirrored, all+"/own"
			before := alice.do(http.MethodGet, one, "")
			for who, p := range people {
				requests := map[string]response{
					"create":                p.do(http.MethodPost, all, object("forged", label)),
					"create, empty label":   p.do(http.MethodPost, all, object("forged", map[string]string{workloadv1alpha1.TargetLabelKey: ""})),
					"apply":                 p.do(http.MethodPatch, all+"/forged?fieldManager=x&force=true", object("forged", label), "Content-Type", apply),
					"update":                p.do(http.MethodPut, one, before.body),
					"merge patch":           p.do(http.MethodPatch, one, `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", merge),
					"taking the label away": p.do(http.MethodPatch, one, `{"metadata":{"labels":{"workload.kcp.io/target":null}}}`, "Content-Type", merge),
					"label by merge":        p.do(http.MethodPatch, plain, `{"metadata":{"labels":{"workload.kcp.io/target":"`+key+`"}}}`, "Content-Type", merge),
					"label by strategic":    p.do(http.MethodPatch, plain, `{"metadata":{"labels":{"workload.kcp.io/target":"`+key+`"}}}`, "Content-Type", strategic),
					"label by json patch":   p.do(http.MethodPatch, plain, `[{"op":"add","path":"/metadata/labels","value":{"workload.kcp.io/target":"x"}}]`, "Content-Type", jsonPatch),
					"label by apply":        p.do(http.MethodPatch, plain+"?fieldManager=x&force=true", object("own", label), "Content-Type", apply),
				}
				if resource.kind == "Pod" {
					requests["status"] = p.do(http.MethodPatch, one+"/status", `{"status":{"phase":"Failed"}}`, "Content-Type", merge)
				} else {
					requests["delete"] = p.do(http.MethodDelete, one, "")
					requests["deletecollection"] = p.do(http.MethodDelete, all+"?labelSelector=workload.kcp.io/target", "")
				}
				for what, r := range requests {
					if r.code != http.StatusForbidden || !strings.Contains(r.status.Message, "workload.kcp.io/target") {
						t.Errorf("%s by %s: %d %s, want 403", what, who, r.code, r.body)
					}
				}
			}
			if diff := cmp.Diff(written(t, before), written(t, alice.do(http.MethodGet, one, ""))); diff != "" {
				t.Errorf("it changed (-before +after):\n%s", diff)
			}
		})
	}

	t.Run("a tenant restarts a pod by deleting it", func(t *testing.T) {
		if r := alice.do(http.MethodDelete, in+"/api/v1/namespaces/default/pods/"+mirrored, ""); r.code != http.StatusOK {
			t.Errorf("%d %s", r.code, r.body)
		}
	})
}

// written returns what of an object the server's controllers leave as it is.
func written(t *testing.T, r response) map[string]any {
	t.Helper()
	var object map[string]any
	must(t, json.Unmarshal([]byte(r.body), &object))
	metadata, _ := object["metadata"].(map[string]any)
	spec, _ := object["spec"].(map[string]any)
	return map[string]any{
		"uid": metadata["uid"], "labels": metadata["labels"], "endpoints": object["endpoints"],
		"target": spec["target"], "addresses": spec["addresses"], "containers": spec["containers"],
	}
}

// createAs creates an object that the test needs.
func createAs[T any](t *testing.T, create func(context.Context, T, metav1.CreateOptions) (T, error), obj T) {
	t.Helper()
	_, err := create(t.Context(), obj, metav1.CreateOptions{})
	must(t, err)
}

// TestSyncerEntry: who may not sync a target learns nothing of it, and a syncer whose
// target is gone is told what to do.
func TestSyncerEntry(t *testing.T) {
	s := framework.Start(t)
	alice, bob := login(t, s, "alice"), login(t, s, "bob")
	own, ownID := alice.home()
	foreign, foreignID := bob.home()
	st, err := alice.clients().SyncTargets(own).Create(t.Context(), &workloadv1alpha1.SyncTarget{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}, metav1.CreateOptions{})
	must(t, err)
	theirs, err := bob.clients().SyncTargets(foreign).Create(t.Context(), &workloadv1alpha1.SyncTarget{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}, metav1.CreateOptions{})
	must(t, err)
	makeServiceAccount(t, alice.kube(own), "default", "syncer")
	// An account of the same name, with rights, where it must not get them.
	makeServiceAccount(t, bob.kube(foreign), "default", "syncer")
	syncer := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "syncer"}
	for p, cluster := range map[*person]logicalcluster.Name{alice: own, bob: foreign} {
		_, err := p.kube(cluster).RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "sync"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"workload.kcp.io"}, Resources: []string{"synctargets"}, ResourceNames: []string{"edge"}, Verbs: []string{"sync"}}},
		}, metav1.CreateOptions{})
		must(t, err)
		bindCluster(t, p.kube(cluster), "sync", syncer)
	}
	token, err := alice.kube(own).CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "syncer", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	account := bearer(t, s, token.Status.Token)
	account.config.Wrap(introduce(version.Self()))
	base := func(cluster logicalcluster.Name, name string, uid types.UID) string {
		return fmt.Sprintf("/services/syncer/%s/%s/%s", cluster, name, uid)
	}
	const target = "/apis/workload.kcp.io/v1alpha1/synctargets/edge"

	for name, tc := range map[string]struct {
		p    *person
		path string
		code int
		want string
	}{
		"its own":                   {account, base(ownID, "edge", st.UID) + target, http.StatusOK, ""},
		"wrong uid":                 {account, base(ownID, "edge", "00000000-0000-0000-0000-000000000000") + target, http.StatusGone, "register this physical cluster again"},
		"wrong name":                {account, base(ownID, "core", st.UID) + target, http.StatusForbidden, `has no verb "sync" on it`},
		"no uid":                    {account, "/services/syncer/" + string(ownID) + "/edge", http.StatusNotFound, "nothing is served here"},
		"not the target of the URL": {account, base(ownID, "edge", st.UID) + "/apis/workload.kcp.io/v1alpha1/synctargets/core", http.StatusNotFound, ""},
		"same name, other cluster":  {account, base(foreignID, "edge", theirs.UID) + target, http.StatusForbidden, `has no verb "sync" on it`},
		"other cluster, no target":  {account, base(foreignID, "none", theirs.UID) + target, http.StatusForbidden, `has no verb "sync" on it`},
		"no cluster":                {account, base("bcdfghjklmnpqrst", "edge", theirs.UID) + target, http.StatusForbidden, `has no verb "sync" on it`},
		"a path for an id":          {account, base("root:users", "edge", theirs.UID) + target, http.StatusForbidden, `has no verb "sync" on it`},
		"the wildcard":              {account, base("*", "edge", theirs.UID) + target, http.StatusForbidden, `has no verb "sync" on it`},
		"a stranger":                {bob, base(ownID, "edge", st.UID) + target, http.StatusForbidden, `has no verb "sync" on it`},
		"anybody":                   {bearer(t, s, ""), base(ownID, "edge", st.UID) + target, http.StatusForbidden, "log in first"},
		"an unassigned namespace":   {account, base(ownID, "edge", st.UID) + "/clusters/" + string(ownID) + "/api/v1/namespaces/default/configmaps/x", http.StatusNotFound, ""},
		"a foreign namespace":       {account, base(ownID, "edge", st.UID) + "/clusters/" + string(foreignID) + "/api/v1/namespaces/default/serviceaccounts/syncer", http.StatusNotFound, ""},
		"the system cluster":        {account, base(ownID, "edge", st.UID) + "/clusters/system/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication", http.StatusNotFound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := tc.p.do(http.MethodGet, tc.path, "")
			if r.code != tc.code || !strings.Contains(r.status.Message, tc.want) {
				t.Errorf("%d %.300s, want %d %q", r.code, r.body, tc.code, tc.want)
			}
		})
	}

	// What a syncer may not write it is not told of either.
	t.Run("writes outside its namespaces", func(t *testing.T) {
		_, err := bob.kube(foreign).CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "there"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/app"}}},
		}, metav1.CreateOptions{})
		must(t, err)
		for _, method := range []string{http.MethodDelete, http.MethodPut, http.MethodPatch} {
			answers := map[string]response{}
			for _, pod := range []string{"there", "not-there"} {
				r := account.do(method, base(ownID, "edge", st.UID)+"/clusters/"+string(foreignID)+"/api/v1/namespaces/default/pods/"+pod, `{}`, "Content-Type", map[string]string{http.MethodPatch: "application/merge-patch+json"}[method])
				if r.code != http.StatusNotFound && r.code != http.StatusForbidden {
					t.Errorf("%s %s: %d %s", method, pod, r.code, r.body)
				}
				answers[pod] = r
			}
			if answers["there"].code != answers["not-there"].code {
				t.Errorf("%s tells whether a pod exists: %d and %d", method, answers["there"].code, answers["not-there"].code)
			}
		}
	})
}
