package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/13eedeaf/kcp/pkg/cli/printer"
	"github.com/13eedeaf/kcp/pkg/cli/session"
	"github.com/13eedeaf/kcp/pkg/cli/workload"
)

func (a *app) cordon() *cobra.Command {
	return a.cordonCommand(true, &cobra.Command{
		Use:   "cordon NAME...",
		Short: "Send nothing new to a cluster; what runs there stays",
		Example: `  kubectl kcp cordon us-east1
  kubectl kcp cordon us-east1 --workspace root:compute`,
	})
}

func (a *app) uncordon() *cobra.Command {
	return a.cordonCommand(false, &cobra.Command{
		Use:     "uncordon NAME...",
		Short:   "Use a cluster again; ends a drain",
		Example: `  kubectl kcp uncordon us-east1`,
	})
}

func (a *app) cordonCommand(cordon bool, cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usageError(cmd, "argument NAME is missing")
		}
		return nil
	}
	a.act(cmd, func(ctx context.Context, s *session.Session, args []string) error {
		use := &workload.Cordon{Console: a.console, Session: s}
		return use.Do(ctx, args, cordon)
	})
	a.contextFlags(cmd)
	return cmd
}

func (a *app) drain() *cobra.Command {
	var in workload.DrainInput
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "drain NAME",
		Short: "Move everything off a cluster without an interruption",
		Long: `Move everything off a cluster without an interruption.

Each namespace leaves when its copy elsewhere serves. The command shows the stages and
ends when the cluster is empty, or with exit code 1 when what is left cannot move: it
stays then. "kubectl kcp uncordon" ends a drain.

Namespaces that hold data on the cluster (PersistentVolumeClaims, StatefulSets), and those
in which a Job or a run of a CronJob is at work, stay unless --force is given.

With --dry-run nothing changes: the command says what would move where, and ends with exit
code 1 if something would stay.`,
		Example: `  kubectl kcp drain us-east1 --dry-run
  kubectl kcp drain us-east1
  kubectl kcp drain us-east1 --detach
  kubectl kcp drain us-east1 --timeout 10m`,
		Args: exactArgs("NAME"),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if !dryRun && (cmd.Flags().Changed("output") || cmd.Flags().Changed("no-headers")) {
				return usageError(cmd, "-o and --no-headers go with --dry-run")
			}
			return nil
		},
	}
	a.show(cmd, func(ctx context.Context, s *session.Session, out printer.Printer, args []string) error {
		in.Name = args[0]
		if dryRun {
			use := &workload.Preview{Console: a.console, Session: s, Printer: out}
			return use.Do(ctx, in.Name, in.Force)
		}
		use := &workload.Drain{Console: a.console, Session: s, Clock: a.clock}
		return use.Do(ctx, in)
	})
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would move where and what would stay")
	cmd.Flags().BoolVar(&in.Detach, "detach", false, "return at once; the server goes on")
	cmd.Flags().BoolVar(&in.Force, "force", false, "move also what cannot run elsewhere or would lose its state")
	cmd.Flags().DurationVar(&in.Timeout, "timeout", 0, "how long to wait; 0 means until it is empty or blocked")
	a.contextFlags(cmd)
	return cmd
}

func (a *app) explain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain NAMESPACE",
		Short: "Say where a namespace runs, and why there",
		Long: `Say where a namespace of the current workspace runs, and why there: the placement that
decides, its assignments and how far they are, what could not be synced, what the gateways
say, and for each other target whether something new could go there.`,
		Example: `  kubectl kcp explain shop
  kubectl kcp explain shop -o yaml`,
		Args: exactArgs("NAMESPACE"),
	}
	a.show(cmd, func(ctx context.Context, s *session.Session, out printer.Printer, args []string) error {
		use := &workload.Explain{Console: a.console, Session: s, Printer: out}
		return use.Do(ctx, args[0])
	})
	a.contextFlags(cmd)
	return cmd
}

func (a *app) workloads() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "workload",
		Short:   "Register physical clusters and see how they are",
		Example: `  kubectl kcp workload list`,
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	a.contextFlags(cmd)
	cmd.AddCommand(a.workloadSync(), a.workloadUnsync(), a.workloadList())
	return cmd
}

func (a *app) workloadSync() *cobra.Command {
	var in workload.SyncInput
	cmd := &cobra.Command{
		Use:   "sync NAME",
		Short: "Register a physical cluster and print what to apply to it",
		Long: `Register a physical cluster as a sync target of the current workspace, and print the
manifest to apply to it.

The syncer gets an identity that may do nothing but sync this target. The manifest and
the kubeconfig hold its token: keep them as secret as one.`,
		Example: `  kubectl kcp workload sync us-east1 --syncer-image IMAGE | kubectl --kubeconfig us-east1.kubeconfig apply -f -
  kubectl kcp workload sync us-east1 --labels region=us-east --output us-east1.yaml
  kubectl kcp workload sync us-east1 --syncer-kubeconfig syncer.kubeconfig --output us-east1.yaml`,
		Args: exactArgs("NAME"),
	}
	a.act(cmd, func(ctx context.Context, s *session.Session, args []string) error {
		in.Name = args[0]
		use := &workload.Sync{Console: a.console, Session: s, Now: a.clock.Now}
		return use.Do(ctx, in)
	})
	cmd.Flags().StringToStringVar(&in.Labels, "labels", nil, "labels of the sync target (key=value), for Locations to select")
	cmd.Flags().StringVarP(&in.Output, "output", "o", "-", "file for the manifest, mode 0600; - is stdout")
	cmd.Flags().StringVar(&in.Image, "syncer-image", "", "image of the syncer; without one the manifest says how to run the binary")
	cmd.Flags().Int32Var(&in.Replicas, "replicas", 0, "replicas of the syncer, of which one is active; 0 means 2")
	cmd.Flags().StringVar(&in.PodSecurity, "pod-security", "", "Pod Security Standard that tenants' namespaces enforce: privileged, baseline (default) or restricted")
	cmd.Flags().StringVar(&in.ServerURL, "kcp-url", "", "address at which the physical cluster reaches this server, if not the kubeconfig's")
	cmd.Flags().StringVar(&in.Kubeconfig, "syncer-kubeconfig", "", "file for the kubeconfig of a syncer that runs outside of the cluster, mode 0600")
	return cmd
}

func (a *app) workloadUnsync() *cobra.Command {
	var in workload.UnsyncInput
	cmd := &cobra.Command{
		Use:   "unsync NAME",
		Short: "Drain a physical cluster and remove it",
		Long: `Drain a physical cluster, remove the syncer and its rights from it, and remove the sync
target and the syncer's identity from the current workspace. Nothing of ours is left.

Without --cluster-kubeconfig the manifest of what is to be deleted from the physical cluster
is printed. A cluster that does not answer any more is given up when its syncer has been
silent for long enough; should it return, its syncer removes what it has.`,
		Example: `  kubectl kcp workload unsync us-east1 --cluster-kubeconfig us-east1.kubeconfig
  kubectl kcp workload unsync us-east1 --yes | kubectl --kubeconfig us-east1.kubeconfig delete --ignore-not-found -f -
  kubectl kcp workload unsync us-east1 --yes --force --timeout 10m`,
		Args: exactArgs("NAME"),
	}
	a.act(cmd, func(ctx context.Context, s *session.Session, args []string) error {
		in.Name = args[0]
		use := &workload.Unsync{Console: a.console, Session: s, Clock: a.clock}
		return use.Do(ctx, in)
	})
	cmd.Flags().BoolVar(&in.Yes, "yes", false, "do it without being asked")
	cmd.Flags().BoolVar(&in.Force, "force", false, "drain also what cannot run elsewhere or would lose its state")
	cmd.Flags().DurationVar(&in.Timeout, "timeout", 0, "how long to wait; 0 means until it is gone or blocked")
	cmd.Flags().StringVar(&in.ClusterKubeconfig, "cluster-kubeconfig", "", "kubeconfig of the physical cluster, to remove the syncer from it")
	cmd.Flags().StringVarP(&in.Output, "output", "o", "-", "file for the manifest of what is to be deleted; - is stdout")
	return cmd
}

func (a *app) workloadList() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the physical clusters of the current workspace",
		Example: `  kubectl kcp workload list
  kubectl kcp workload list --workspace root:compute -o wide`,
		Args: exactArgs(),
	}
	a.show(cmd, func(ctx context.Context, s *session.Session, out printer.Printer, _ []string) error {
		use := &workload.List{Console: a.console, Session: s, Printer: out, Now: a.clock.Now}
		return use.Do(ctx)
	})
	return cmd
}
