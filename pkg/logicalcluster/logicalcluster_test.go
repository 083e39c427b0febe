package logicalcluster

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNewID(t *testing.T) {
	form := regexp.MustCompile(`^[b-df-hj-np-tv-xz][b-df-hj-np-tv-xz2-9]{15}$`)
	seen := map[Name]bool{}
	for range 10000 {
		id := NewID()
		if !form.MatchString(string(id)) || !id.Valid() {
			t.Fatalf("id %q", id)
		}
		if seen[id] {
			t.Fatalf("id %q was drawn twice", id)
		}
		seen[id] = true
	}
}

func TestNameValid(t *testing.T) {
	cases := map[string]bool{
		"root": true, "system": true, "a": true, "a-b": true, "2b": true, strings.Repeat("a", 63): true,
		"": false, "*": false, "A": false, "-a": false, "a-": false, "a:b": false, "a/b": false, "..": false,
		"a.b": false, strings.Repeat("a", 64): false, "a\n": false,
	}
	for name, want := range cases {
		if got := Name(name).Valid(); got != want {
			t.Errorf("Name(%q).Valid() = %t, want %t", name, got, want)
		}
	}
}

func TestParsePath(t *testing.T) {
	cases := map[string]bool{
		"root": true, "root:org:team": true, "bcdfghjklmnpqrst:a": true,
		"": false, ":": false, "root:": false, ":root": false, "root::a": false, "root:A": false,
		"root/a": false, "root:*": false, "*": false, "root:..": false, "root:%2F": false, "root:a b": false,
	}
	for path, want := range cases {
		got, err := ParsePath(path)
		if (err == nil) != want {
			t.Errorf("ParsePath(%q): error %v, want success %t", path, err, want)
		}
		if err == nil && got.String() != path {
			t.Errorf("ParsePath(%q) = %q", path, got)
		}
		if err != nil && !strings.Contains(err.Error(), `"`+path+`"`) {
			t.Errorf("ParsePath(%q): the error does not name it: %v", path, err)
		}
	}
}

func TestPath(t *testing.T) {
	cases := map[string]struct {
		path       Path
		wantSplit  []string
		wantBase   string
		wantParent Path
		wantOK     bool
	}{
		"one segment": {path: "root", wantSplit: []string{"root"}, wantBase: "root"},
		"deep":        {path: "root:a:b", wantSplit: []string{"root", "a", "b"}, wantBase: "b", wantParent: "root:a", wantOK: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.wantSplit, tc.path.Split()); diff != "" {
				t.Errorf("Split (-want +got):\n%s", diff)
			}
			if got := tc.path.Base(); got != tc.wantBase {
				t.Errorf("Base() = %q, want %q", got, tc.wantBase)
			}
			parent, ok := tc.path.Parent()
			if parent != tc.wantParent || ok != tc.wantOK {
				t.Errorf("Parent() = %q, %t, want %q, %t", parent, ok, tc.wantParent, tc.wantOK)
			}
			if ok {
				if got := parent.Join(tc.wantBase); got != tc.path {
					t.Errorf("Parent().Join(Base()) = %q, want %q", got, tc.path)
				}
			}
			if got, want := tc.path.RequestPath(), "/clusters/"+string(tc.path); got != want {
				t.Errorf("RequestPath() = %q, want %q", got, want)
			}
		})
	}
	if got := Path("").Join("root"); got != "root" {
		t.Errorf(`Path("").Join("root") = %q`, got)
	}
}

func TestContext(t *testing.T) {
	cases := map[string]struct {
		ctx     context.Context
		want    Name
		wantErr error
	}{
		"set":       {ctx: WithCluster(t.Context(), "abc"), want: "abc"},
		"wildcard":  {ctx: WithCluster(t.Context(), Wildcard), want: Wildcard},
		"innermost": {ctx: WithCluster(WithCluster(t.Context(), "abc"), "def"), want: "def"},
		"absent":    {ctx: t.Context(), wantErr: ErrNoCluster},
		"empty":     {ctx: WithCluster(t.Context(), ""), wantErr: ErrNoCluster},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := FromContext(tc.ctx)
			if got != tc.want || !errors.Is(err, tc.wantErr) {
				t.Errorf("FromContext() = %q, %v, want %q, %v", got, err, tc.want, tc.wantErr)
			}
		})
	}
}

func TestKey(t *testing.T) {
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "x", Annotations: map[string]string{AnnotationKey: "abc"},
	}}
	want := Key{Cluster: "abc", Namespace: "ns", Name: "x"}
	if diff := cmp.Diff(want, KeyOf(obj)); diff != "" {
		t.Errorf("KeyOf (-want +got):\n%s", diff)
	}
	// Different keys have different strings, since stores use them.
	strs := map[string]Key{}
	for _, key := range []Key{want, {Cluster: "abc", Name: "x"}, {Cluster: "abc", Name: "ns"}, {Cluster: "ns", Name: "x"}, {Cluster: "x", Namespace: "ns", Name: "abc"}} {
		if other, ok := strs[key.String()]; ok {
			t.Errorf("%+v and %+v are both %q", key, other, key)
		}
		strs[key.String()] = key
	}
	if got := want.String(); got != "abc|ns/x" {
		t.Errorf("String() = %q", got)
	}
}
