package manifest

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

func options() Options {
	return Options{SyncTargetName: "us-east1", SyncTargetUID: "uid-1", SyncTargetCluster: "compute", Kubeconfig: []byte("kubeconfig")}
}

// documents renders and reads back, keyed by kind and name.
func documents(t *testing.T, o Options) map[string]*unstructured.Unstructured {
	t.Helper()
	doc, err := Render(o)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*unstructured.Unstructured{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(doc), 4096)
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(obj.Object) > 0 {
			out[obj.GetKind()+"/"+obj.GetNamespace()+"/"+obj.GetName()] = obj
		}
	}
}

func keys(docs map[string]*unstructured.Unstructured) []string {
	var out []string
	for key := range docs {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

func TestRender(t *testing.T) {
	id := names.InstanceID("compute", "uid-1")
	ns := "kcp-syncer-" + id
	base := []string{
		"ClusterRole//" + ns,
		"ClusterRole//" + ns + "-data",
		"ClusterRoleBinding//" + ns,
		"Namespace//" + ns,
		"Role/" + ns + "/kcp-syncer-lease",
		"RoleBinding/" + ns + "/kcp-syncer-lease",
		"Secret/" + ns + "/kcp-syncer-kubeconfig",
		"ServiceAccount/" + ns + "/kcp-syncer",
		"ValidatingAdmissionPolicy//" + ns,
		"ValidatingAdmissionPolicyBinding//" + ns,
	}
	withImage := options()
	withImage.Image = "example.com/syncer:v1"
	cases := map[string]struct {
		options Options
		want    []string
	}{
		"WithoutImage": {options(), base},
		"WithImage":    {withImage, append([]string{"Deployment/" + ns + "/kcp-syncer"}, base...)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := slices.Clone(tc.want)
			slices.Sort(want)
			if diff := cmp.Diff(want, keys(documents(t, tc.options))); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRenderFlags(t *testing.T) {
	o := options()
	want := []string{"--sync-target-name=us-east1", "--sync-target-uid=uid-1", "--sync-target-cluster=compute"}
	doc, err := Render(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range want {
		if !strings.Contains(string(doc), flag) {
			t.Errorf("the comment does not name %s", flag)
		}
	}
	o.Image = "example.com/syncer:v1"
	docs := documents(t, o)
	id := names.InstanceID("compute", "uid-1")
	d := docs["Deployment/kcp-syncer-"+id+"/kcp-syncer"]
	if replicas, _, _ := unstructured.NestedFieldNoCopy(d.Object, "spec", "replicas"); replicas != float64(2) {
		t.Errorf("replicas = %v, want 2", replicas)
	}
	containers, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	if diff := cmp.Diff(append([]string{"--from-kubeconfig=/etc/kcp/kubeconfig"}, want...), args); diff != "" {
		t.Errorf("args (-want +got):\n%s", diff)
	}
}

// Two control planes, or two SyncTargets of one, share nothing.
func TestLesson18InstancesDoNotMeet(t *testing.T) {
	a, b := options(), options()
	b.SyncTargetCluster = "elsewhere"
	first := documents(t, a)
	for key := range documents(t, b) {
		if _, ok := first[key]; ok {
			t.Errorf("both instances make %s", key)
		}
	}
}

// Secrets, ConfigMaps, events and the ways into pods may be in no role that holds for the
// whole cluster.
func TestLesson21LeastPrivilege(t *testing.T) {
	id := names.InstanceID("compute", "uid-1")
	role := func(o Options, name string) []rbacv1.PolicyRule {
		t.Helper()
		out := &rbacv1.ClusterRole{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(documents(t, o)["ClusterRole//"+name].Object, out); err != nil {
			t.Fatal(err)
		}
		return out.Rules
	}
	granted := func(rules []rbacv1.PolicyRule) map[string]bool {
		out := map[string]bool{}
		for _, rule := range rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if resource == "*" || verb == "*" || slices.Contains(rule.APIGroups, "*") {
						t.Errorf("rule %v has a wildcard", rule)
					}
					out[verb+" "+resource] = true
				}
			}
		}
		return out
	}
	everywhere := granted(role(options(), names.ClusterRole(id)))
	for what := range everywhere {
		if strings.HasSuffix(what, " secrets") || strings.HasSuffix(what, " configmaps") || strings.HasSuffix(what, " events") || strings.Contains(what, "pods/") {
			t.Errorf("granted for the whole cluster: %s", what)
		}
	}
	for _, what := range []string{"create deployments", "patch services", "delete namespaces", "watch endpointslices", "bind clusterroles"} {
		if !everywhere[what] {
			t.Errorf("not granted: %s", what)
		}
	}
	access := map[string]bool{
		"get events": true, "list events": true, "watch events": true, "get pods/log": true,
		"get pods/exec": true, "create pods/exec": true, "get pods/attach": true, "create pods/attach": true,
		"get pods/portforward": true, "create pods/portforward": true,
	}
	want := maps.Clone(access)
	for _, verb := range []string{"get", "list", "create", "patch", "delete"} {
		want[verb+" secrets"], want[verb+" configmaps"] = true, true
	}
	if diff := cmp.Diff(want, granted(role(options(), names.DataRole(id)))); diff != "" {
		t.Errorf("role for data (-want +got):\n%s", diff)
	}

	limited := options()
	limited.Resources = []workloadv1alpha1.GroupResource{{Group: "apps", Resource: "deployments"}}
	everywhere = granted(role(limited, names.ClusterRole(id)))
	if everywhere["create services"] || everywhere["create pods"] || !everywhere["create deployments"] {
		t.Errorf("granted with deployments only: %v", everywhere)
	}
	if diff := cmp.Diff(access, granted(role(limited, names.DataRole(id)))); diff != "" {
		t.Errorf("role for data with deployments only (-want +got):\n%s", diff)
	}
}

func TestRenderErrors(t *testing.T) {
	cases := map[string]struct {
		change func(*Options)
		want   string
	}{
		"NoName":          {func(o *Options) { o.SyncTargetName = "" }, "SyncTargetName is required"},
		"NoUID":           {func(o *Options) { o.SyncTargetUID = "" }, "SyncTargetUID is required"},
		"NoCluster":       {func(o *Options) { o.SyncTargetCluster = "" }, "SyncTargetCluster is required"},
		"NoKubeconfig":    {func(o *Options) { o.Kubeconfig = nil }, "Kubeconfig is required"},
		"Replicas":        {func(o *Options) { o.Replicas = -1 }, "must not be negative"},
		"UnknownResource": {func(o *Options) { o.Resources = []workloadv1alpha1.GroupResource{{Resource: "widgets"}} }, `"widgets"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := options()
			tc.change(&o)
			if _, err := Render(o); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Render() error = %v, want one with %q", err, tc.want)
			}
		})
	}
}
