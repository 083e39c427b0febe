package workspace

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/cli/session"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Candidate is a workspace that a person may mean, in the form in which they began to
// type it.
type Candidate struct {
	Name string
	// What it is, for a person; may be empty.
	What string
}

// Candidates returns what can be typed for a workspace: the words that lead somewhere
// and the children of the current one, or the children of what stands before the last
// colon.
func Candidates(ctx context.Context, s *session.Session, typed string) []Candidate {
	i := strings.LastIndexByte(typed, ':')
	if i < 0 {
		words := []Candidate{
			{".", "where you are"}, {"..", "the workspace above"}, {"-", "the workspace before this one"},
			{"~", "your home workspace"}, {string(logicalcluster.Root), "the top"},
		}
		return append(words, Children(ctx, s, s.Path, "")...)
	}
	use := Use{Session: s}
	parent, err := use.resolve(ctx, typed[:i])
	if err != nil {
		return nil
	}
	// A child's name alone is relative; with a colon it would be read as a path.
	if first, _, _ := strings.Cut(typed, ":"); first != ".." && first != "~" && first != string(logicalcluster.Root) {
		return nil
	}
	return Children(ctx, s, parent, typed[:i+1])
}

// Children returns the workspaces directly below one, each with a prefix before its
// name; none where they cannot be listed.
func Children(ctx context.Context, s *session.Session, parent logicalcluster.Path, prefix string) []Candidate {
	client, err := s.Workspaces(parent)
	if err != nil {
		return nil
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	out := make([]Candidate, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, Candidate{prefix + list.Items[i].Name, typeOf(&list.Items[i])})
	}
	return out
}

// Types returns the types that a new child of the current workspace can have: those of
// root by name, those of the workspaces in between as PATH:NAME. Where root's cannot be
// read, they are those that every server has.
func Types(ctx context.Context, s *session.Session) []Candidate {
	found := []Candidate{}
	for path, ok := s.Path, true; ok; path, ok = path.Parent() {
		names, listed := typesIn(ctx, s, path)
		prefix := ""
		switch {
		case path != logicalcluster.Root.Path():
			prefix = string(path) + ":"
		case !listed:
			names = []string{tenancyv1alpha1.TypeOrganization, tenancyv1alpha1.TypeTeam, tenancyv1alpha1.TypeUniversal}
		}
		for _, name := range names {
			found = append(found, Candidate{Name: prefix + name})
		}
	}
	return found
}

// typesIn lists the types in one workspace that a person may ask for.
func typesIn(ctx context.Context, s *session.Session, path logicalcluster.Path) (names []string, listed bool) {
	client, err := s.WorkspaceTypes(path)
	if err != nil {
		return nil, false
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, false
	}
	for i := range list.Items {
		if !list.Items[i].Spec.ServerOnly {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, true
}
