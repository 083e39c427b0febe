package workspace

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/printer"
	"github.com/13eedeaf/kcp/pkg/cli/session"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// List is the use case of "workspace list".
type List struct {
	Console *console.Console
	Session *session.Session
	Printer printer.Printer
	Now     func() time.Time
}

// Do lists the children of the current workspace.
func (l *List) Do(ctx context.Context) error {
	client, err := l.Session.Workspaces(l.Session.Path)
	if err != nil {
		return err
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return explainHere(ctx, l.Session, err)
	}
	if len(list.Items) == 0 && !l.Printer.Format.Structured() {
		l.Console.Note("No workspaces in %q.", l.Session.Path)
	}
	return printer.List(l.Printer, list, printer.Pointers(list.Items), []printer.Column[*tenancyv1alpha1.Workspace]{
		{Header: "NAME", Value: func(w *tenancyv1alpha1.Workspace) string { return w.Name }},
		{Header: "TYPE", Value: typeOf},
		{Header: "PHASE", Value: phaseOf},
		{Header: "AGE", Value: func(w *tenancyv1alpha1.Workspace) string {
			return duration.HumanDuration(l.Now().Sub(w.CreationTimestamp.Time))
		}},
		{Header: "CLUSTER", Wide: true, Value: func(w *tenancyv1alpha1.Workspace) string { return w.Spec.Cluster }},
		{Header: "URL", Wide: true, Value: func(w *tenancyv1alpha1.Workspace) string { return w.Spec.URL }},
	})
}

// explainHere distinguishes a current workspace that has gone from one in which
// something is forbidden.
func explainHere(ctx context.Context, s *session.Session, err error) error {
	if apierrors.IsNotFound(err) {
		return Explain(ctx, s, s.Path, err)
	}
	return err
}

func typeOf(w *tenancyv1alpha1.Workspace) string {
	if w.Spec.Type == nil {
		return ""
	}
	return w.Spec.Type.Name
}

func phaseOf(w *tenancyv1alpha1.Workspace) string {
	if !w.DeletionTimestamp.IsZero() {
		return string(tenancyv1alpha1.WorkspacePhaseDeleting)
	}
	return string(w.Status.Phase)
}

// Tree is the use case of "workspace tree".
type Tree struct {
	Console *console.Console
	Session *session.Session
	Printer printer.Printer
}

// Node is a workspace in the output of tree -o json.
type Node struct {
	Name    string `json:"name"`
	Path    string `json:"path"`
	Type    string `json:"type,omitempty"`
	Phase   string `json:"phase,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	// Unlisted says why the children are unknown.
	Unlisted string `json:"unlisted,omitempty"`
	Children []Node `json:"children"`
}

// TreeInput of Tree.
type TreeInput struct {
	// Top is where to begin; empty means the current workspace.
	Top string
	// Depth limits the levels below the top; 0 means all.
	Depth int
}

// Do shows the workspaces below one. A branch that cannot be listed is marked, and
// does not fail the command.
func (t *Tree) Do(ctx context.Context, in TreeInput) error {
	top := t.Session.Path
	if in.Top != "" {
		use := Use{Console: t.Console, Session: t.Session}
		path, err := use.resolve(ctx, in.Top)
		if err != nil {
			return err
		}
		top = path
	}
	root := Node{Name: top.Base(), Path: string(top)}
	if in.Depth <= 0 {
		in.Depth = maxDepth
	}
	if err := t.fill(ctx, &root, top, in.Depth); err != nil {
		return Explain(ctx, t.Session, top, err)
	}
	switch t.Printer.Format.Output {
	case "json", "yaml":
		return t.Printer.Value(root)
	case "name":
		return eachPath(t.Console.Out, root)
	}
	rows := append([]row{{drawn: root.Path, node: root}}, branches(root.Children, "")...)
	if t.Printer.Format.Output == "wide" {
		return printer.Table(t.Printer, rows, []printer.Column[row]{
			{Header: "WORKSPACE", Value: func(r row) string { return r.drawn }},
			{Header: "TYPE", Value: func(r row) string { return r.node.Type }},
			{Header: "PHASE", Value: func(r row) string { return r.node.Phase }},
			{Header: "CLUSTER", Value: func(r row) string { return r.node.Cluster }},
		})
	}
	for _, r := range rows {
		if _, err := fmt.Fprintln(t.Console.Out, r.drawn); err != nil {
			return err
		}
	}
	return nil
}

// row is a line of a drawn tree.
type row struct {
	drawn string
	node  Node
}

// maxDepth ends the walk should a server ever show a circle.
const maxDepth = 64

func (t *Tree) fill(ctx context.Context, n *Node, path logicalcluster.Path, depth int) error {
	n.Children = []Node{}
	if depth == 0 {
		return nil
	}
	client, err := t.Session.Workspaces(path)
	if err != nil {
		return err
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	slices.SortFunc(list.Items, func(a, b tenancyv1alpha1.Workspace) int { return strings.Compare(a.Name, b.Name) })
	for i := range list.Items {
		ws := &list.Items[i]
		child := Node{
			Name: ws.Name, Path: string(path.Join(ws.Name)), Type: typeOf(ws), Phase: phaseOf(ws), Cluster: ws.Spec.Cluster,
		}
		err := t.fill(ctx, &child, path.Join(ws.Name), depth-1)
		switch {
		case apierrors.IsForbidden(err):
			child.Unlisted = "forbidden"
		case apierrors.IsNotFound(err):
			child.Unlisted = "not served"
		case err != nil:
			return err
		}
		n.Children = append(n.Children, child)
	}
	return nil
}

// branches draws the nodes below one.
func branches(nodes []Node, indent string) []row {
	rows := []row{}
	for i, n := range nodes {
		branch, below := "├── ", "│   "
		if i == len(nodes)-1 {
			branch, below = "└── ", "    "
		}
		note := ""
		if n.Phase != "" && n.Phase != string(tenancyv1alpha1.WorkspacePhaseReady) {
			note = " (" + n.Phase + ")"
		}
		if n.Unlisted != "" {
			note += " [" + n.Unlisted + "]"
		}
		rows = append(rows, row{drawn: indent + branch + n.Name + note, node: n})
		rows = append(rows, branches(n.Children, indent+below)...)
	}
	return rows
}

func eachPath(w io.Writer, n Node) error {
	if _, err := fmt.Fprintln(w, n.Path); err != nil {
		return err
	}
	for _, c := range n.Children {
		if err := eachPath(w, c); err != nil {
			return err
		}
	}
	return nil
}
