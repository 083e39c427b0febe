package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/13eedeaf/kcp/pkg/cli/printer"
	"github.com/13eedeaf/kcp/pkg/cli/session"
	"github.com/13eedeaf/kcp/pkg/cli/workspace"
)

// defaultWait is how long commands wait for a workspace to be made or to go.
const defaultWait = 2 * time.Minute

func (a *app) workspaces() *cobra.Command {
	var in workspace.UseInput
	cmd := &cobra.Command{
		Use:     "workspace [PATH | NAME | . | .. | - | ~]",
		Aliases: []string{"ws", "workspaces"},
		Short:   "Show, choose, make and delete workspaces",
		Long: `Show the current workspace, or go to another one:

  .       where you are
  ..      the workspace above (..:NAME is a neighbour)
  -       the workspace before this one
  ~       your home workspace
  NAME    a child of the current workspace
  PATH    a path from the top, such as root:org:team`,
		Example: `  kubectl kcp ws
  kubectl kcp ws root:org:team
  kubectl kcp ws ..
  kubectl kcp ws create team --use
  kubectl kcp ws tree root`,
		Args: atMostOne,
	}
	a.use(cmd, &in)
	a.contextFlags(cmd)
	cmd.Flags().BoolVar(&in.Short, "short", false, "print the path alone, as for a shell prompt")
	cmd.AddCommand(a.workspaceUse(), a.workspaceCreate(), a.workspaceList(), a.workspaceTree(), a.workspaceDelete())
	return cmd
}

// use makes a command go to the workspace that its argument names, if there is one.
func (a *app) use(cmd *cobra.Command, in *workspace.UseInput) {
	a.act(cmd, func(ctx context.Context, s *session.Session, args []string) error {
		if len(args) > 0 {
			in.Target = args[0]
		}
		use := &workspace.Use{Console: a.console, Config: a.store(), Session: s}
		return use.Do(ctx, *in)
	})
}

func (a *app) workspaceUse() *cobra.Command {
	var in workspace.UseInput
	cmd := &cobra.Command{
		Use:   "use {PATH | NAME | . | .. | - | ~}",
		Short: "Go to a workspace",
		Example: `  kubectl kcp ws use root:org:team
  kubectl kcp ws use team
  kubectl kcp ws use -`,
		Args: exactArgs("PATH"),
	}
	a.use(cmd, &in)
	cmd.Flags().BoolVar(&in.Short, "short", false, "print the path alone")
	return cmd
}

func (a *app) workspaceCreate() *cobra.Command {
	var in workspace.CreateInput
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a workspace below the current one",
		Example: `  kubectl kcp ws create team
  kubectl kcp ws create org --type organization --use
  kubectl kcp ws create team --wait --timeout 1m -o json`,
		Args: exactArgs("NAME"),
	}
	a.show(cmd, func(ctx context.Context, s *session.Session, out printer.Printer, args []string) error {
		in.Name = args[0]
		use := &workspace.Create{
			Console: a.console, Session: s, Printer: out, Clock: a.clock,
			Use: &workspace.Use{Console: a.console, Config: a.store(), Session: s},
		}
		return use.Do(ctx, in)
	})
	cmd.Flags().StringVar(&in.Type, "type", "", "workspace type, such as organization, team or universal (PATH:NAME for one that is not in root)")
	cmd.Flags().BoolVar(&in.Enter, "use", false, "go to the new workspace when it is ready")
	cmd.Flags().BoolVar(&in.Wait, "wait", false, "wait until it is ready")
	cmd.Flags().DurationVar(&in.Timeout, "timeout", defaultWait, "how long to wait")
	cmd.Flags().BoolVar(&in.IgnoreExisting, "ignore-existing", false, "do not fail if it is there already")
	return cmd
}

func (a *app) workspaceList() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the workspaces below the current one",
		Example: `  kubectl kcp ws list
  kubectl kcp ws list --workspace root -o name`,
		Args: exactArgs(),
	}
	a.show(cmd, func(ctx context.Context, s *session.Session, out printer.Printer, _ []string) error {
		use := &workspace.List{Console: a.console, Session: s, Printer: out, Now: a.clock.Now}
		return use.Do(ctx)
	})
	return cmd
}

func (a *app) workspaceTree() *cobra.Command {
	var in workspace.TreeInput
	cmd := &cobra.Command{
		Use:   "tree [PATH]",
		Short: "Show the workspaces below one, with theirs",
		Example: `  kubectl kcp ws tree
  kubectl kcp ws tree root --depth 2 -o wide
  kubectl kcp ws tree root -o json`,
		Args: atMostOne,
	}
	a.show(cmd, func(ctx context.Context, s *session.Session, out printer.Printer, args []string) error {
		if len(args) > 0 {
			in.Top = args[0]
		}
		use := &workspace.Tree{Console: a.console, Session: s, Printer: out}
		return use.Do(ctx, in)
	})
	cmd.Flags().IntVar(&in.Depth, "depth", 0, "how many levels to show; 0 means all")
	return cmd
}

func (a *app) workspaceDelete() *cobra.Command {
	var in workspace.DeleteInput
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a workspace below the current one, with all that is in it",
		Example: `  kubectl kcp ws delete team
  kubectl kcp ws delete team --yes --wait=false`,
		Args: exactArgs("NAME"),
	}
	a.act(cmd, func(ctx context.Context, s *session.Session, args []string) error {
		in.Name = args[0]
		use := &workspace.Delete{Console: a.console, Session: s, Clock: a.clock}
		return use.Do(ctx, in)
	})
	cmd.Flags().BoolVarP(&in.Yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&in.Wait, "wait", true, "wait until it is gone")
	cmd.Flags().DurationVar(&in.Timeout, "timeout", defaultWait, "how long to wait")
	return cmd
}
