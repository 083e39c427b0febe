package table_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/gateway/table"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

type ingress struct{ *networkingv1.Ingress }

// makeIngress returns an Ingress created that many minutes after the epoch.
func makeIngress(uid string, minutes int) ingress {
	return ingress{&networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{
		Name: uid, UID: types.UID(uid), CreationTimestamp: metav1.NewTime(time.Unix(int64(minutes)*60, 0).UTC()),
	}}}
}

func service(name string) networkingv1.IngressBackend {
	return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: name, Port: networkingv1.ServiceBackendPort{Number: 80}}}
}

func (i ingress) fallback(name string) ingress {
	i.Spec.DefaultBackend = ptr.To(service(name))
	return i
}

func (i ingress) rule(host string, paths ...networkingv1.HTTPIngressPath) ingress {
	i.Spec.Rules = append(i.Spec.Rules, networkingv1.IngressRule{
		Host:             host,
		IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: paths}},
	})
	return i
}

func prefix(path, to string) networkingv1.HTTPIngressPath {
	return networkingv1.HTTPIngressPath{Path: path, PathType: ptr.To(networkingv1.PathTypePrefix), Backend: service(to)}
}

func exact(path, to string) networkingv1.HTTPIngressPath {
	return networkingv1.HTTPIngressPath{Path: path, PathType: ptr.To(networkingv1.PathTypeExact), Backend: service(to)}
}

func implementationSpecific(path, to string) networkingv1.HTTPIngressPath {
	return networkingv1.HTTPIngressPath{Path: path, PathType: ptr.To(networkingv1.PathTypeImplementationSpecific), Backend: service(to)}
}

// claimAll returns a claim by which all hosts of an Ingress are held, except the taken.
func claimAll(i *networkingv1.Ingress, taken ...string) *networkingv1alpha1.HostClaim {
	claim := &networkingv1alpha1.HostClaim{ObjectMeta: metav1.ObjectMeta{Name: i.Name}, Spec: networkingv1alpha1.HostClaimSpec{IngressUID: i.UID}}
	hosts := map[string]bool{}
	for _, rule := range i.Spec.Rules {
		hosts[strings.ToLower(rule.Host)] = true
	}
	if len(i.Spec.Rules) == 0 {
		hosts[""] = true
	}
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		claim.Spec.Hosts = append(claim.Spec.Hosts, networkingv1alpha1.ClaimedHost{Host: host, Held: !slices.Contains(taken, host)})
	}
	return claim
}

// namespaces builds one namespace "n" in each cluster.
func namespaces(ingresses map[logicalcluster.Name][]ingress) map[table.NamespaceKey]*table.Namespace {
	out := map[table.NamespaceKey]*table.Namespace{}
	for cluster, list := range ingresses {
		key := table.NamespaceKey{Cluster: cluster, Namespace: "n"}
		var in table.Inputs
		for _, i := range list {
			in.Ingresses = append(in.Ingresses, i.Ingress)
			in.Claims = append(in.Claims, claimAll(i.Ingress))
		}
		out[key] = table.BuildNamespace(key, in)
	}
	return out
}

// match returns cluster/service of the route, or "".
func match(t *table.Table, host, path string) string {
	r, ok := t.Match(host, path)
	if !ok {
		return ""
	}
	return string(r.Namespace.Cluster) + "/" + r.Namespace.Backends[r.Backend].Service
}

func TestMatch(t *testing.T) {
	type request struct{ host, path string }
	tests := map[string]struct {
		ingresses map[logicalcluster.Name][]ingress
		want      map[request]string
	}{
		"Prefix goes by path elements": {
			ingresses: map[logicalcluster.Name][]ingress{"a": {makeIngress("1", 0).rule("h.example.com", prefix("/foo", "foo"), prefix("/bar/", "bar"), prefix("/aaa/bbb", "deep"), implementationSpecific("/impl", "impl"))}},
			want: map[request]string{
				{"h.example.com", "/foo"}:         "a/foo",
				{"h.example.com", "/foo/"}:        "a/foo",
				{"h.example.com", "/foo/x/y"}:     "a/foo",
				{"h.example.com", "/foobar"}:      "",
				{"h.example.com", "/bar"}:         "a/bar",
				{"h.example.com", "/bar/"}:        "a/bar",
				{"h.example.com", "/bar/x"}:       "a/bar",
				{"h.example.com", "/aaa"}:         "",
				{"h.example.com", "/aaa/bbbxyz"}:  "",
				{"h.example.com", "/aaa/bbb/ccc"}: "a/deep",
				{"h.example.com", "/impl/x"}:      "a/impl",
				{"h.example.com", "/implx"}:       "",
				{"h.example.com", "/"}:            "",
				{"h.example.com", "/Foo"}:         "",
			},
		},
		"Exact before Prefix, the longest Prefix before shorter ones": {
			ingresses: map[logicalcluster.Name][]ingress{"a": {makeIngress("1", 0).rule("h.example.com", prefix("/", "root"), prefix("/foo", "foo"), prefix("/foo/bar", "bar"), exact("/foo", "exact"), exact("/foo/bar/", "slash"))}},
			want: map[request]string{
				{"h.example.com", "/"}:          "a/root",
				{"h.example.com", "/x"}:         "a/root",
				{"h.example.com", "/foo"}:       "a/exact",
				{"h.example.com", "/foo/"}:      "a/foo",
				{"h.example.com", "/foo/bar"}:   "a/bar",
				{"h.example.com", "/foo/bar/"}:  "a/slash",
				{"h.example.com", "/foo/bar/x"}: "a/bar",
			},
		},
		"the most specific host answers alone": {
			ingresses: map[logicalcluster.Name][]ingress{"a": {
				makeIngress("1", 0).rule("foo.example.com", prefix("/foo", "foo")),
				makeIngress("2", 0).rule("*.example.com", prefix("/", "wild")),
				makeIngress("3", 0).rule("", prefix("/", "any")),
			}},
			want: map[request]string{
				{"foo.example.com", "/foo"}:       "a/foo",
				{"FOO.Example.com.:8080", "/foo"}: "a/foo",
				{"foo.example.com", "/other"}:     "",
				{"bar.example.com", "/foo"}:       "a/wild",
				{"x.bar.example.com", "/foo"}:     "a/any",
				{"example.com", "/foo"}:           "a/any",
				{"[::1]:80", "/foo"}:              "a/any",
				{"", "/foo"}:                      "a/any",
			},
		},
		"a host before a wildcard, in whichever workspace": {
			ingresses: map[logicalcluster.Name][]ingress{
				"a": {makeIngress("1", 0).rule("*.example.com", prefix("/", "wild"))},
				"b": {makeIngress("2", 5).rule("foo.example.com", prefix("/foo", "foo"))},
				"c": {makeIngress("3", 0).fallback("rest")},
			},
			want: map[request]string{
				{"foo.example.com", "/foo"}:   "b/foo",
				{"foo.example.com", "/other"}: "",
				{"bar.example.com", "/foo"}:   "a/wild",
				{"example.com", "/foo"}:       "c/rest",
			},
		},
		"a default backend serves the hosts of its own Ingress": {
			ingresses: map[logicalcluster.Name][]ingress{"a": {makeIngress("1", 0).fallback("rest").rule("h.example.com", prefix("/foo", "foo")).rule("i.example.com")}},
			want: map[request]string{
				{"h.example.com", "/foo"}: "a/foo",
				{"h.example.com", "/bar"}: "a/rest",
				{"i.example.com", "/bar"}: "a/rest",
				{"j.example.com", "/bar"}: "",
			},
		},
		"a default backend without rules serves all hosts": {
			ingresses: map[logicalcluster.Name][]ingress{"a": {makeIngress("1", 0).fallback("rest")}},
			want:      map[request]string{{"x.example.com", "/bar"}: "a/rest"},
		},
		"a host belongs to one workspace": {
			ingresses: map[logicalcluster.Name][]ingress{
				"a": {makeIngress("1", 5).rule("h.example.com", prefix("/a", "late"))},
				"b": {makeIngress("2", 1).rule("h.example.com", prefix("/b", "early")), makeIngress("3", 9).rule("h.example.com", prefix("/b", "shadowed"), prefix("/c", "same-tenant"))},
			},
			want: map[request]string{
				{"h.example.com", "/a"}: "",
				{"h.example.com", "/b"}: "b/early",
				{"h.example.com", "/c"}: "b/same-tenant",
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tbl, _ := table.Update(nil, namespaces(tc.ingresses), time.UnixMilli(1))
			got := map[request]string{}
			for r := range tc.want {
				got[r] = match(tbl, r.host, r.path)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("routes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestClaims: gateways serve what the server says that a workspace holds, and probe the
// rest all the same.
func TestClaims(t *testing.T) {
	key := table.NamespaceKey{Cluster: "a", Namespace: "n"}
	web := makeIngress("1", 0).rule("h.example.com", prefix("/", "h")).rule("taken.example.com", prefix("/", "taken"))
	rest := makeIngress("2", 0).fallback("rest")
	earlier := claimAll(web.Ingress)
	earlier.Spec.IngressUID = "earlier"
	for name, tc := range map[string]struct {
		claims []*networkingv1alpha1.HostClaim
		want   map[string]string
	}{
		"all held":                   {[]*networkingv1alpha1.HostClaim{claimAll(web.Ingress), claimAll(rest.Ingress)}, map[string]string{"h.example.com": "a/h", "taken.example.com": "a/taken", "x.example.com": "a/rest"}},
		"one is another's":           {[]*networkingv1alpha1.HostClaim{claimAll(web.Ingress, "taken.example.com")}, map[string]string{"h.example.com": "a/h", "taken.example.com": "", "x.example.com": ""}},
		"no word yet":                {nil, map[string]string{"h.example.com": "", "taken.example.com": "", "x.example.com": ""}},
		"of an Ingress that was":     {[]*networkingv1alpha1.HostClaim{earlier}, map[string]string{"h.example.com": "", "taken.example.com": "", "x.example.com": ""}},
		"the rest belongs to others": {[]*networkingv1alpha1.HostClaim{claimAll(rest.Ingress, "")}, map[string]string{"h.example.com": "", "taken.example.com": "", "x.example.com": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			ns := table.BuildNamespace(key, table.Inputs{Ingresses: []*networkingv1.Ingress{web.Ingress, rest.Ingress}, Claims: tc.claims})
			if len(ns.Backends) != 3 {
				t.Errorf("backends: got %v, want those of all rules", ns.Backends)
			}
			tbl, _ := table.Update(nil, map[table.NamespaceKey]*table.Namespace{key: ns}, time.UnixMilli(1))
			got := map[string]string{}
			for host := range tc.want {
				got[host] = match(tbl, host, "/")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("routes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHoldersKeepTheirHosts(t *testing.T) {
	host := "h.example.com"
	first, _ := table.Update(nil, namespaces(map[logicalcluster.Name][]ingress{
		"old": {makeIngress("1", 0).rule("other.example.com")},
		"new": {makeIngress("2", 10).rule(host, prefix("/", "new"))},
	}), time.UnixMilli(1))
	edited := namespaces(map[logicalcluster.Name][]ingress{"old": {makeIngress("1", 0).rule(host, prefix("/", "old"))}})

	stolen, _ := table.Update(first, edited, time.UnixMilli(2))
	if got := match(stolen, host, "/"); got != "new/new" {
		t.Errorf("an older Ingress that names a held host: got route %q, want new/new", got)
	}
	// What was decided survives a restart.
	path := filepath.Join(t.TempDir(), "table.json")
	if err := stolen.Save(path); err != nil {
		t.Fatal(err)
	}
	loaded, err := table.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := match(loaded, host, "/"); got != "new/new" {
		t.Errorf("after a restart: got route %q, want new/new", got)
	}
	released, _ := table.Update(loaded, map[table.NamespaceKey]*table.Namespace{{Cluster: "new", Namespace: "n"}: nil}, time.UnixMilli(3))
	if got := match(released, host, "/"); got != "old/old" {
		t.Errorf("after the holder let go: got route %q, want old/old", got)
	}
	if holder, _ := released.Holder("H.example.com"); holder != "old" {
		t.Errorf("holder: got %q, want old", holder)
	}
}

func TestUpdate(t *testing.T) {
	a, b := table.NamespaceKey{Cluster: "a", Namespace: "n"}, table.NamespaceKey{Cluster: "b", Namespace: "n"}
	both := map[logicalcluster.Name][]ingress{"a": {makeIngress("1", 0).rule("a.example.com")}, "b": {makeIngress("2", 0).rule("b.example.com")}}
	first, changed := table.Update(nil, namespaces(both), time.UnixMilli(1000))
	if diff := cmp.Diff([]table.NamespaceKey{a, b}, changed); diff != "" {
		t.Errorf("changed at first (-want +got):\n%s", diff)
	}
	same, changed := table.Update(first, namespaces(both), time.UnixMilli(2000))
	if same != first || len(changed) != 0 {
		t.Errorf("an update without a change made a new table, revision %d, changed %v", same.Revision, changed)
	}
	// The clock went back, the revision does not.
	second, changed := table.Update(first, namespaces(map[logicalcluster.Name][]ingress{"b": {makeIngress("2", 0).rule("c.example.com")}}), time.UnixMilli(10))
	if second.Revision != 1001 {
		t.Errorf("revision: got %d, want 1001", second.Revision)
	}
	if diff := cmp.Diff([]table.NamespaceKey{b}, changed); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if got := second.Namespaces[b].Revision; got != 1001 {
		t.Errorf("revision of the changed namespace: got %d, want 1001", got)
	}
	if second.Namespaces[a] != first.Namespaces[a] {
		t.Error("the namespace that did not change is a different object")
	}
	empty, _ := table.Update(nil, nil, time.UnixMilli(5))
	if empty.Revision != 5 {
		t.Errorf("the first table of an empty server: got revision %d, want 5", empty.Revision)
	}
}

// TestStepsEqualRebuild: a table made by many small updates routes like one made at once
// from the same namespaces and holders.
func TestStepsEqualRebuild(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	hosts := []string{"a.example.com", "b.example.com", "*.example.com", ""}
	clusters := []logicalcluster.Name{"c1", "c2", "c3"}
	paths := []string{"/", "/x", "/x/y"}
	tbl, _ := table.Update(nil, nil, time.UnixMilli(1))
	for step := range 500 {
		cluster := clusters[random.IntN(len(clusters))]
		var list []ingress
		for n := range random.IntN(3) {
			i := makeIngress(fmt.Sprintf("%s-%d", cluster, n), random.IntN(3))
			for range 1 + random.IntN(2) {
				i = i.rule(hosts[random.IntN(len(hosts))], prefix(paths[random.IntN(len(paths))], fmt.Sprintf("s%d", random.IntN(3))))
			}
			list = append(list, i)
		}
		tbl, _ = table.Update(tbl, namespaces(map[logicalcluster.Name][]ingress{cluster: list}), time.UnixMilli(1))
		rebuilt := &table.Table{}
		if err := json.Unmarshal([]byte(mustJSON(t, tbl)), rebuilt); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(mustJSON(t, rebuilt), mustJSON(t, tbl)); diff != "" {
			t.Fatalf("step %d (-rebuilt +updated):\n%s", step, diff)
		}
		for _, host := range []string{"a.example.com", "b.example.com", "z.example.com", "other.org"} {
			for _, path := range paths {
				if want, got := match(rebuilt, host, path), match(tbl, host, path); got != want {
					t.Fatalf("step %d: %s%s goes to %q, in a rebuilt table to %q", step, host, path, got, want)
				}
			}
		}
	}
}

func TestDisk(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "table.json")
	if got, err := table.Load(path); got != nil || err != nil {
		t.Fatalf("without a file: got %v, %v; want nil, nil", got, err)
	}
	saved, _ := table.Update(nil, build(readInputs(t, "testdata/handover.yaml")), time.UnixMilli(1000))
	if err := saved.Save(path); err != nil {
		t.Fatal(err)
	}
	loaded, err := table.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	want, got := mustJSON(t, saved), mustJSON(t, loaded)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("loaded table (-want +got):\n%s", diff)
	}
	// What the server says again after a restart is no change.
	if again, changed := table.Update(loaded, build(readInputs(t, "testdata/handover.yaml")), time.UnixMilli(2000)); again != loaded {
		t.Errorf("the same inputs after a restart changed %v", changed)
	}
	for name, content := range map[string]string{
		"damaged":         `{"version":1,`,
		"other version":   `{"version":99}`,
		"wild index":      `{"version":1,"namespaces":[{"cluster":"a","namespace":"n","ingresses":[{"hosts":[{"host":"h","paths":[{"path":"/","backend":7}]}]}]}]}`,
		"null namespaces": `{"version":1,"namespaces":[null]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := table.Load(path); err == nil {
				t.Errorf("loaded %v, want an error", got)
			}
		})
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
