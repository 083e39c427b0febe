package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// typeFor returns the spec.type of a new workspace below parent: what it asks for, or
// the default of the parent's type. The error says in a sentence why it may not be.
func (p *Plugin) typeFor(ctx context.Context, parent logicalcluster.Name, parentPath logicalcluster.Path, ws *unstructured.Unstructured, server bool) (map[string]any, error) {
	parentType, err := p.parentType(parent)
	if err != nil {
		return nil, err
	}
	name, _, _ := unstructured.NestedString(ws.Object, "spec", "type", "name")
	path, _, _ := unstructured.NestedString(ws.Object, "spec", "type", "path")
	if name == "" {
		name = p.defaultType(ctx, parent, parentType)
	}
	if path == "" {
		path = string(logicalcluster.Root)
	}
	cluster, err := p.typeCluster(ctx, parent, logicalcluster.Path(path))
	if err != nil {
		return nil, fmt.Errorf("workspace type %q: %w", name, err)
	}
	typ, err := p.getType(ctx, cluster, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no workspace type %q in %q", name, path)
	case err != nil:
		return nil, fmt.Errorf("cannot read workspace type %q in %q: %w", name, path, err)
	case typ.Spec.ServerOnly && !server:
		return nil, fmt.Errorf("workspaces of type %q are made by the server only", name)
	case len(typ.Spec.AllowedParents) > 0 && !slices.Contains(typ.Spec.AllowedParents, parentType.Name):
		return nil, fmt.Errorf("a workspace of type %q stands below one of type %s; %q is of type %q", name, quoted(typ.Spec.AllowedParents), parentPath, parentType.Name)
	}
	return map[string]any{"name": name, "path": path}, nil
}

// parentType returns the type reference of the cluster in which a workspace is made.
func (p *Plugin) parentType(parent logicalcluster.Name) (tenancyv1alpha1.WorkspaceTypeReference, error) {
	if parent == logicalcluster.Root {
		return tenancyv1alpha1.WorkspaceTypeReference{Name: tenancyv1alpha1.TypeRoot}, nil
	}
	ws, ok := p.tree.Workspace(parent)
	if !ok || ws.Spec.Type == nil {
		return tenancyv1alpha1.WorkspaceTypeReference{}, fmt.Errorf("the type of logical cluster %q is not known yet, try again", parent)
	}
	return *ws.Spec.Type, nil
}

// defaultType is the type of a child that names none. Where the parent's type is gone
// meanwhile, it is universal.
func (p *Plugin) defaultType(ctx context.Context, parent logicalcluster.Name, parentType tenancyv1alpha1.WorkspaceTypeReference) string {
	path := logicalcluster.Path(parentType.Path)
	if path == "" {
		path = logicalcluster.Root.Path()
	}
	cluster, err := p.typeCluster(ctx, parent, path)
	if err != nil {
		return tenancyv1alpha1.TypeUniversal
	}
	typ, err := p.getType(ctx, cluster, parentType.Name)
	if err != nil || typ.Spec.DefaultChildType == "" {
		return tenancyv1alpha1.TypeUniversal
	}
	return typ.Spec.DefaultChildType
}

// typeCluster returns the cluster that holds a type: the new workspace's parent or one
// above it. Others stay out, so that nobody learns what types strangers have.
func (p *Plugin) typeCluster(ctx context.Context, parent logicalcluster.Name, path logicalcluster.Path) (logicalcluster.Name, error) {
	if path == logicalcluster.Root.Path() {
		return logicalcluster.Root, nil
	}
	if _, err := logicalcluster.ParsePath(path.String()); err != nil {
		return "", err
	}
	cluster, err := p.tree.Resolve(ctx, path)
	if err != nil || !slices.Contains(p.tree.Ancestors(parent), cluster) {
		return "", fmt.Errorf("its path %q is not the parent workspace or one above it", path)
	}
	return cluster, nil
}

func quoted(names []string) string {
	out := make([]string, len(names))
	for n, name := range names {
		out[n] = fmt.Sprintf("%q", name)
	}
	return strings.Join(out, " or ")
}

func equal(a, b any) bool { return apiequality.Semantic.DeepEqual(a, b) }

func join(field []string) string {
	if field[0] == "metadata" {
		return "annotation " + field[len(field)-1]
	}
	return strings.Join(field, ".")
}
