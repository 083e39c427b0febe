package names

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

func TestNamespace(t *testing.T) {
	type input struct {
		cluster   logicalcluster.Name
		namespace string
		uid       types.UID
	}
	// Parts that would meet if they were joined carelessly.
	inputs := []input{
		{"a", "b", "c"}, {"a", "bc", ""}, {"ab", "c", ""}, {"a-b", "c", "d"}, {"a", "b-c", "d"}, {"a", "b", "d"}, {"b", "a", "c"},
	}
	seen := map[string]input{}
	for _, in := range inputs {
		name := Namespace(in.cluster, in.namespace, in.uid)
		if other, ok := seen[name]; ok {
			t.Errorf("%v and %v share namespace %q", in, other, name)
		}
		seen[name] = in
		if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
			t.Errorf("Namespace(%v) = %q: %v", in, name, errs)
		}
		if !IsTenantNamespace(name) {
			t.Errorf("IsTenantNamespace(%q) = false", name)
		}
	}
	// Downstream objects outlive the syncer: names may never change.
	if got, want := Namespace("root", "shop", "uid-1"), "kcp-s2gs55vpcfktakh25m3i"; got != want {
		t.Errorf("Namespace() = %q, want %q", got, want)
	}
	for _, foreign := range []string{"default", SyncerNamespace("t0123456789a"), "kcp-system"} {
		if IsTenantNamespace(foreign) {
			t.Errorf("IsTenantNamespace(%q) = true", foreign)
		}
	}
}

func TestReport(t *testing.T) {
	names := map[string]bool{}
	for _, n := range []string{
		Report("t1", "deployments", "apps", "web"),
		Report("t1", "deployments", "apps", "web2"),
		Report("t1", "statefulsets", "apps", "web"),
		Report("t1", "deployments", "", "web"),
		Report("t2", "deployments", "apps", "web"),
	} {
		if names[n] {
			t.Errorf("report name %q is not unique", n)
		}
		names[n] = true
	}
	long := Report("t0123456789a", "poddisruptionbudgets", "policy", strings.Repeat("x", 253))
	if errs := validation.IsDNS1123Subdomain(long); len(errs) > 0 {
		t.Errorf("Report() = %q: %v", long, errs)
	}
}

func TestMirror(t *testing.T) {
	mirror := Mirror("tabcdefghijk", "web-1")
	if want := "web-1-ghijk"; mirror != want {
		t.Errorf("Mirror() = %q, want %q", mirror, want)
	}
	if name, ok := Mirrored("tabcdefghijk", mirror); name != "web-1" || !ok {
		t.Errorf("Mirrored() = %q, %t", name, ok)
	}
	if name, ok := Mirrored("tother", mirror); ok {
		t.Errorf("Mirrored() of another target's mirror = %q, true", name)
	}
}

func TestSource(t *testing.T) {
	cases := map[string]struct {
		annotation string
		want       Source
		wantErr    bool
	}{
		"Full":        {annotation: Source{"c1", "shop", "root:a"}.Annotation(), want: Source{"c1", "shop", "root:a"}},
		"WithoutPath": {annotation: `{"cluster":"c1","namespace":"shop"}`, want: Source{Cluster: "c1", Namespace: "shop"}},
		"None":        {annotation: "", wantErr: true},
		"Incomplete":  {annotation: `{"cluster":"c1"}`, wantErr: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseSource(tc.annotation)
			if (err != nil) != tc.wantErr {
				t.Fatalf("ParseSource() error = %v, want one: %t", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("ParseSource (-want +got):\n%s", diff)
			}
		})
	}
}
