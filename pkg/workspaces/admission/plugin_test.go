package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/workspaces"
)

type serverKey struct{}

func asServer(ctx context.Context) context.Context { return context.WithValue(ctx, serverKey{}, true) }

// tree is root, root:org (organization), root:org:team (team), root:users
// (organization), root:going (being deleted).
type tree struct{}

var places = map[logicalcluster.Name]struct{ parent, path, typ string }{
	"root":    {"", "root", "root"},
	"idorg":   {"root", "root:org", "organization"},
	"idteam":  {"idorg", "root:org:team", "team"},
	"idusers": {"root", "root:users", "organization"},
	"idgoing": {"root", "root:going", "universal"},
	"idother": {"root", "root:other", "universal"},
}

func (tree) Path(c logicalcluster.Name) (logicalcluster.Path, bool) {
	p, ok := places[c]
	return logicalcluster.Path(p.path), ok
}

func (tree) Ancestors(c logicalcluster.Name) []logicalcluster.Name {
	var out []logicalcluster.Name
	for c != "" {
		out = append(out, c)
		c = logicalcluster.Name(places[c].parent)
	}
	return out
}

func (tree) Workspace(c logicalcluster.Name) (*tenancyv1alpha1.Workspace, bool) {
	p, ok := places[c]
	if !ok || c == "root" {
		return nil, false
	}
	ws := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{logicalcluster.PathAnnotationKey: p.path}},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: p.typ, Path: "root"}},
	}
	if c == "idgoing" {
		now := metav1.Now()
		ws.DeletionTimestamp = &now
	}
	return ws, true
}

func (tree) Resolve(_ context.Context, path logicalcluster.Path) (logicalcluster.Name, error) {
	for id, p := range places {
		if p.path == string(path) {
			return id, nil
		}
	}
	return "", workspaces.ErrNotFound
}

func newPlugin() *Plugin {
	getType := func(_ context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.WorkspaceType, error) {
		for _, typ := range workspaces.Types() {
			if cluster == logicalcluster.Root && typ.Name == name {
				return typ, nil
			}
		}
		if name == "custom" && (cluster == "idorg" || cluster == "idother") {
			return &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
		}
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "workspacetypes"}, name)
	}
	p := New(tree{}, getType, "https://kcp.example.com:6443", func(ctx context.Context) bool { return ctx.Value(serverKey{}) != nil })
	p.newID = func() logicalcluster.Name { return "newid" }
	return p
}

var alice = &user.DefaultInfo{Name: "alice", UID: "1", Groups: []string{"dev"}, Extra: map[string][]string{"token": {"secret"}}}

const aliceJSON = `{"username":"alice","uid":"1","groups":["dev"]}`

func object(content map[string]any) *unstructured.Unstructured {
	content["apiVersion"], content["kind"] = "tenancy.kcp.io/v1alpha1", "Workspace"
	return &unstructured.Unstructured{Object: content}
}

func attributes(obj, old runtime.Object, op admission.Operation, resource, subresource string, u user.Info) admission.Attributes {
	group := "tenancy.kcp.io"
	switch resource {
	case "logicalclusters":
		group = "core.kcp.io"
	case "configmaps":
		group = ""
	case "selfsubjectaccessreviews":
		group = "authorization.k8s.io"
	}
	gvr := schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: resource}
	return admission.NewAttributesRecord(obj, old, schema.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: "Workspace"}, "", "x", gvr, subresource, op, nil, false, u)
}

func TestAdmitCreate(t *testing.T) {
	created := func(path, typ, typePath string) map[string]any {
		return map[string]any{
			"metadata": map[string]any{
				"name": path[strings.LastIndexByte(path, ':')+1:],
				"annotations": map[string]any{
					"tenancy.kcp.io/owner": aliceJSON,
					"kcp.io/path":          path,
				},
				"finalizers": []any{"core.kcp.io/logicalcluster"},
			},
			"spec": map[string]any{
				"type":    map[string]any{"name": typ, "path": typePath},
				"cluster": "newid",
				"URL":     "https://kcp.example.com:6443/clusters/" + path,
			},
		}
	}
	named := func(spec map[string]any) map[string]any {
		if spec == nil {
			return map[string]any{"metadata": map[string]any{"name": "x"}, "spec": nil}
		}
		return map[string]any{"metadata": map[string]any{"name": "x"}, "spec": spec}
	}
	typ := func(name, path string) map[string]any {
		ref := map[string]any{}
		if name != "" {
			ref["name"] = name
		}
		if path != "" {
			ref["path"] = path
		}
		return named(map[string]any{"type": ref})
	}
	cases := map[string]struct {
		parent  logicalcluster.Name
		in      map[string]any
		server  bool
		want    map[string]any
		wantErr string
	}{
		"nothing asked": {
			parent: "root", in: map[string]any{"metadata": map[string]any{"name": "x"}},
			want: created("root:x", "universal", "root"),
		},
		"default of the parent's type": {parent: "idorg", in: named(nil), want: created("root:org:x", "team", "root")},
		"default without any":          {parent: "idteam", in: named(nil), want: created("root:org:team:x", "universal", "root")},
		"allowed parent":               {parent: "root", in: typ("organization", ""), want: created("root:x", "organization", "root")},
		"type of an ancestor":          {parent: "idteam", in: typ("custom", "root:org"), want: created("root:org:team:x", "custom", "root:org")},
		"what the client sets is ignored": {
			parent: "root",
			in: map[string]any{
				"metadata": map[string]any{
					"name":        "x",
					"annotations": map[string]any{"tenancy.kcp.io/owner": `{"username":"bob"}`, "kcp.io/path": "root:bob"},
				},
				"spec": map[string]any{"cluster": "system", "URL": "https://evil.example.com"},
			},
			want: created("root:x", "universal", "root"),
		},
		"the server names the owner, and its own types": {
			parent: "idusers", server: true,
			in: map[string]any{
				"metadata": map[string]any{"name": "x", "annotations": map[string]any{"tenancy.kcp.io/owner": aliceJSON}},
				"spec":     map[string]any{"type": map[string]any{"name": "home"}},
			},
			want: created("root:users:x", "home", "root"),
		},
		"server-only type":      {parent: "idusers", in: typ("home", ""), wantErr: `workspaces of type "home" are made by the server only`},
		"unknown type":          {parent: "root", in: typ("nope", ""), wantErr: `there is no workspace type "nope" in "root"`},
		"parent not allowed":    {parent: "root", in: typ("team", ""), wantErr: `a workspace of type "team" stands below one of type "organization"; "root" is of type "root"`},
		"type of a stranger":    {parent: "idteam", in: typ("custom", "root:other"), wantErr: `workspace type "custom": its path "root:other" is not the parent workspace or one above it`},
		"type of nobody":        {parent: "idteam", in: typ("custom", "root:nope"), wantErr: `workspace type "custom": its path "root:nope" is not the parent workspace or one above it`},
		"malformed type path":   {parent: "idteam", in: typ("custom", "a/b"), wantErr: `workspace path "a/b" is malformed`},
		"parent is no cluster":  {parent: "system", in: named(nil), wantErr: `logical cluster "system" is no workspace, so it has no children`},
		"no cluster in context": {parent: "", in: named(nil), wantErr: logicalcluster.ErrNoCluster.Error()},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx := logicalcluster.WithCluster(t.Context(), tc.parent)
			if tc.server {
				ctx = asServer(ctx)
			}
			obj := object(tc.in)
			err := newPlugin().Admit(ctx, attributes(obj, nil, admission.Create, "workspaces", "", alice), nil)
			if !matches(err, tc.wantErr) {
				t.Fatalf("error %v, want %q", err, tc.wantErr)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(object(tc.want).Object, obj.Object); diff != "" {
				t.Errorf("workspace (-want +got):\n%s", diff)
			}
		})
	}
}

func matches(err error, want string) bool {
	if err == nil || want == "" {
		return err == nil && want == ""
	}
	return strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "\n")
}

func TestAdmitCreateGenerateName(t *testing.T) {
	obj := object(map[string]any{"metadata": map[string]any{"generateName": "pr-"}})
	ctx := logicalcluster.WithCluster(t.Context(), "root")
	if err := newPlugin().Admit(ctx, attributes(obj, nil, admission.Create, "workspaces", "", alice), nil); err != nil {
		t.Fatal(err)
	}
	url, _, _ := unstructured.NestedString(obj.Object, "spec", "URL")
	if !strings.HasPrefix(obj.GetName(), "pr-") || len(obj.GetName()) != 8 || url != "https://kcp.example.com:6443/clusters/root:"+obj.GetName() {
		t.Errorf("name %q, URL %q", obj.GetName(), url)
	}
}

// existing is a workspace as the server made it, with changes.
func existing(change func(ws *unstructured.Unstructured)) *unstructured.Unstructured {
	ws := object(map[string]any{
		"metadata": map[string]any{
			"name":        "x",
			"annotations": map[string]any{"tenancy.kcp.io/owner": aliceJSON, "kcp.io/path": "root:x"},
			"finalizers":  []any{"core.kcp.io/logicalcluster"},
		},
		"spec": map[string]any{
			"type":    map[string]any{"name": "universal", "path": "root"},
			"cluster": "newid", "URL": "https://kcp.example.com:6443/clusters/root:x",
		},
	})
	if change != nil {
		change(ws)
	}
	return ws
}

func set(t *testing.T, value any, path ...string) func(*unstructured.Unstructured) {
	return func(ws *unstructured.Unstructured) {
		t.Helper()
		if err := unstructured.SetNestedField(ws.Object, value, path...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUpdate runs both halves of the plugin, as the server does.
func TestUpdate(t *testing.T) {
	cases := map[string]struct {
		change  func(*unstructured.Unstructured)
		server  bool
		want    *unstructured.Unstructured
		wantErr string
	}{
		"nothing": {want: existing(nil)},
		"label":   {change: set(t, "v", "metadata", "labels", "k"), want: existing(set(t, "v", "metadata", "labels", "k"))},
		"left out": {
			change: func(ws *unstructured.Unstructured) {
				delete(ws.Object, "spec")
				ws.SetAnnotations(nil)
			},
			want: existing(nil),
		},
		"type":      {change: set(t, "team", "spec", "type", "name"), wantErr: "spec.type is set by the server at creation and never changes"},
		"cluster":   {change: set(t, "other", "spec", "cluster"), wantErr: "spec.cluster is set by the server"},
		"URL":       {change: set(t, "https://evil.example.com", "spec", "URL"), wantErr: "spec.URL is set by the server"},
		"owner":     {change: set(t, `{"username":"bob"}`, "metadata", "annotations", "tenancy.kcp.io/owner"), wantErr: "annotation tenancy.kcp.io/owner is set by the server"},
		"path":      {change: set(t, "root:y", "metadata", "annotations", "kcp.io/path"), wantErr: "annotation kcp.io/path is set by the server"},
		"finalizer": {change: func(ws *unstructured.Unstructured) { ws.SetFinalizers(nil) }, wantErr: `finalizer "core.kcp.io/logicalcluster" is removed by the server`},
		"finalizer, by the server": {
			server: true,
			change: func(ws *unstructured.Unstructured) { ws.SetFinalizers(nil) },
			want:   existing(func(ws *unstructured.Unstructured) { ws.SetFinalizers(nil) }),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx := logicalcluster.WithCluster(t.Context(), "root")
			if tc.server {
				ctx = asServer(ctx)
			}
			obj := existing(tc.change)
			a := attributes(obj, existing(nil), admission.Update, "workspaces", "", alice)
			p := newPlugin()
			err := p.Admit(ctx, a, nil)
			if err == nil {
				err = p.Validate(ctx, a, nil)
			}
			if !matches(err, tc.wantErr) {
				t.Fatalf("error %v, want %q", err, tc.wantErr)
			}
			if err == nil {
				if diff := cmp.Diff(tc.want.Object, obj.Object); diff != "" {
					t.Errorf("workspace (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestValidateOthers(t *testing.T) {
	cases := map[string]struct {
		cluster     logicalcluster.Name
		resource    string
		subresource string
		op          admission.Operation
		server      bool
		wantErr     string
	}{
		"anything":                          {cluster: "idorg", resource: "configmaps", op: admission.Create},
		"in root":                           {cluster: "root", resource: "configmaps", op: admission.Create},
		"in system":                         {cluster: "system", resource: "configmaps", op: admission.Create},
		"create in a going workspace":       {cluster: "idgoing", resource: "configmaps", op: admission.Create, wantErr: `workspace "root:going" is being deleted`},
		"child of a going workspace":        {cluster: "idgoing", resource: "workspaces", op: admission.Create, wantErr: `workspace "root:going" is being deleted`},
		"update in a going workspace":       {cluster: "idgoing", resource: "configmaps", op: admission.Update},
		"delete in a going workspace":       {cluster: "idgoing", resource: "configmaps", op: admission.Delete},
		"question in a going workspace":     {cluster: "idgoing", resource: "selfsubjectaccessreviews", op: admission.Create},
		"eviction in a going workspace":     {cluster: "idgoing", resource: "configmaps", subresource: "eviction", op: admission.Create},
		"create by the server":              {cluster: "idgoing", resource: "configmaps", op: admission.Create, server: true},
		"no cluster":                        {cluster: "", resource: "configmaps", op: admission.Create, wantErr: logicalcluster.ErrNoCluster.Error()},
		"LogicalCluster":                    {cluster: "idorg", resource: "logicalclusters", op: admission.Create, wantErr: "LogicalClusters are written by the server"},
		"LogicalCluster update":             {cluster: "idorg", resource: "logicalclusters", op: admission.Update, wantErr: "LogicalClusters are written by the server"},
		"LogicalCluster deletion":           {cluster: "idorg", resource: "logicalclusters", op: admission.Delete, wantErr: "LogicalClusters are written by the server"},
		"LogicalCluster, by the server":     {cluster: "idorg", resource: "logicalclusters", op: admission.Create, server: true},
		"status of a workspace":             {cluster: "idorg", resource: "workspaces", subresource: "status", op: admission.Update, wantErr: "the status of a Workspace is written by the server"},
		"status of one, by the server":      {cluster: "idorg", resource: "workspaces", subresource: "status", op: admission.Update, server: true},
		"workspace deletion is RBAC's call": {cluster: "idorg", resource: "workspaces", op: admission.Delete},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx := logicalcluster.WithCluster(t.Context(), tc.cluster)
			if tc.server {
				ctx = asServer(ctx)
			}
			p := newPlugin()
			if !p.Handles(tc.op) {
				t.Fatalf("the plugin does not handle %s", tc.op)
			}
			// The server's name alone does not help: who may impersonate could take it.
			u := &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}
			err := p.Validate(ctx, attributes(nil, nil, tc.op, tc.resource, tc.subresource, u), nil)
			if !matches(err, tc.wantErr) {
				t.Errorf("error %v, want %q", err, tc.wantErr)
			}
		})
	}
}

func TestNewGetType(t *testing.T) {
	stored := &tenancyv1alpha1.WorkspaceType{}
	live := &tenancyv1alpha1.WorkspaceType{}
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprintf("known=%t", known), func(t *testing.T) {
			get := NewGetType(
				func(logicalcluster.Name, string, string) (*tenancyv1alpha1.WorkspaceType, bool) { return stored, known },
				func(context.Context, logicalcluster.Name, string, metav1.GetOptions) (*tenancyv1alpha1.WorkspaceType, error) {
					return live, nil
				},
			)
			got, err := get(t.Context(), "root", "x")
			if err != nil || (got == stored) != known {
				t.Errorf("got the stored type: %t, want %t (%v)", got == stored, known, err)
			}
		})
	}
}
