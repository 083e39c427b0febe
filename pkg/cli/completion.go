package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/printer"
	"github.com/13eedeaf/kcp/pkg/cli/session"
	"github.com/13eedeaf/kcp/pkg/cli/workspace"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// completer is the program that kubectl runs for "kubectl kcp …<TAB>".
const completer = "kubectl_complete-kcp"

// completionTimeout bounds what a key press waits for.
const completionTimeout = 900 * time.Millisecond

// IsCompleter reports whether this program was started, by name, to complete.
func IsCompleter(program string) bool {
	return strings.TrimSuffix(filepath.Base(program), ".exe") == completer
}

// Complete prints what can follow the arguments, the last of which is being typed, in
// cobra's protocol, as kubectl expects it. It prints nothing else, asks nothing and
// never fails: what cannot be found out in time is not offered. The other streams are
// not used.
func Complete(ctx context.Context, args []string, _ io.Reader, stdout, _ io.Writer) int {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	a := &app{
		console: &console.Console{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard},
		clock:   clock.RealClock{},
	}
	var out bytes.Buffer
	root := a.command()
	root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, append(args, "")[:max(len(args), 1)]...))
	root.SetOut(&out)
	root.SetErr(io.Discard)
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }() // another one's credential plugin may hang
	select {
	case <-ctx.Done():
	case err := <-done:
		if err == nil {
			_, _ = out.WriteTo(stdout) // a shell that went away needs no answer
			return 0
		}
	}
	_, _ = fmt.Fprintf(stdout, ":%d\n", cobra.ShellCompDirectiveNoFileComp)
	return 0
}

// candidates finds what an argument can be. It returns what it can find out.
type candidates func(ctx context.Context, s *session.Session, typed string) []cobra.Completion

// completions makes the commands below root complete their arguments and flags.
func (a *app) completions(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	arguments := map[string]candidates{
		"workspace": anyWorkspace, "workspace use": anyWorkspace, "workspace tree": anyWorkspace, "workspace delete": childWorkspaces,
		"cordon": syncTargets, "uncordon": syncTargets, "drain": syncTargets, "workload sync": syncTargets, "workload unsync": syncTargets,
		"locations": locations, "explain": namespaces, "workload explain": namespaces,
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		path := strings.TrimPrefix(cmd.CommandPath(), root.CommandPath()+" ")
		if find, ok := arguments[path]; ok {
			cmd.ValidArgsFunction = a.argument(find, strings.Contains(cmd.Use, "..."))
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if complete := a.flag(f); complete != nil {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // it was registered for another command that shares it
			}
		})
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root)
}

// argument completes one argument, or each of many.
func (a *app) argument(find candidates, many bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && !many {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found := a.find(cmd, find, typed)
		return slices.DeleteFunc(found, func(c cobra.Completion) bool { return slices.Contains(args, choice(c)) }), cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) find(cmd *cobra.Command, find candidates, typed string) []cobra.Completion {
	s, err := a.open(cmd.Context())
	if err != nil {
		return nil
	}
	return beginning(typed, find(cmd.Context(), s, typed))
}

// beginning returns the completions of what was typed.
func beginning(typed string, found []cobra.Completion) []cobra.Completion {
	return slices.DeleteFunc(found, func(c cobra.Completion) bool { return !strings.HasPrefix(c, typed) })
}

// choice is a completion without its description.
func choice(c cobra.Completion) string {
	word, _, _ := strings.Cut(c, "\t")
	return word
}

// formatsPrefix begins the help of every flag -o whose values it lists.
const formatsPrefix = "output format: "

// flag completes the values of a flag; nil leaves it as it is.
func (a *app) flag(f *pflag.Flag) cobra.CompletionFunc {
	fixed := func(values ...string) cobra.CompletionFunc {
		return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return beginning(typed, slices.Clone(values)), cobra.ShellCompDirectiveNoFileComp
		}
	}
	formats, isFormat := strings.CutPrefix(f.Usage, formatsPrefix)
	switch {
	case isFormat:
		return fixed(strings.Split(formats, ", ")...)
	case f.Name == "color":
		return fixed("auto", "always", "never")
	case f.Name == "pod-security":
		return fixed("privileged", "baseline", "restricted")
	case f.Name == "kubeconfig", f.Name == "certificate-authority", f.Name == "syncer-kubeconfig", f.Name == "cluster-kubeconfig", f.Name == "output":
		return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		}
	case f.Name == "context":
		return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
			cfg, err := a.store().Load()
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return beginning(typed, slices.Sorted(maps.Keys(cfg.Contexts))), cobra.ShellCompDirectiveNoFileComp
		}
	case f.Name == "workspace":
		return a.found(workspacePaths)
	case f.Name == "type":
		return a.found(workspaceTypes)
	}
	return nil
}

// found completes the values of a flag with what the server has.
func (a *app) found(find candidates) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return a.find(cmd, find, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

func workspaceTypes(ctx context.Context, s *session.Session, _ string) []cobra.Completion {
	return describe(workspace.Types(ctx, s))
}

func anyWorkspace(ctx context.Context, s *session.Session, typed string) []cobra.Completion {
	return describe(workspace.Candidates(ctx, s, typed))
}

func childWorkspaces(ctx context.Context, s *session.Session, typed string) []cobra.Completion {
	if strings.Contains(typed, ":") {
		return nil
	}
	return describe(workspace.Children(ctx, s, s.Path, ""))
}

func workspacePaths(ctx context.Context, s *session.Session, typed string) []cobra.Completion {
	if !strings.Contains(typed, ":") {
		return []cobra.Completion{string(logicalcluster.Root), string(s.Path)}
	}
	return anyWorkspace(ctx, s, typed)
}

func describe(found []workspace.Candidate) []cobra.Completion {
	out := make([]cobra.Completion, 0, len(found))
	for _, c := range found {
		if c.What == "" {
			out = append(out, c.Name)
			continue
		}
		out = append(out, cobra.CompletionWithDesc(c.Name, c.What))
	}
	return out
}

func syncTargets(ctx context.Context, s *session.Session, _ string) []cobra.Completion {
	client, err := s.SyncTargets(s.Path)
	if err != nil {
		return nil
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return names(printer.Pointers(list.Items))
}

func locations(ctx context.Context, s *session.Session, _ string) []cobra.Completion {
	client, err := s.EffectiveLocations(s.Path)
	if err != nil {
		return nil
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return names(printer.Pointers(list.Items))
}

func namespaces(ctx context.Context, s *session.Session, _ string) []cobra.Completion {
	client, err := s.Namespaces(s.Path)
	if err != nil {
		return nil
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return names(printer.Pointers(list.Items))
}

func names[T metav1.Object](items []T) []cobra.Completion {
	out := make([]cobra.Completion, 0, len(items))
	for _, item := range items {
		out = append(out, item.GetName())
	}
	return out
}
