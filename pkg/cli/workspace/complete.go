package workspace

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
