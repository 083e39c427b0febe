package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/13eedeaf/kcp/test/physical"
)

func newCommand() *cobra.Command {
	o := physical.Options{Dir: filepath.Join("_artifacts", "physical"), Log: os.Stderr}
	if exe, err := os.Executable(); err == nil {
		o.BinDir = filepath.Dir(exe)
	}
	cmd := &cobra.Command{
		Use:           "physical",
		Short:         "Real Kubernetes clusters on one machine, for tests and demos",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.CompletionOptions.DisableDefaultCmd = true
	fixture := []*cobra.Command{
		newUpCommand(&o), newDownCommand(&o), newStatusCommand(&o), newStopCommand(&o), newStartCommand(&o),
	}
	for _, c := range fixture {
		c.Flags().StringVar(&o.Dir, "dir", o.Dir, "directory of the fixture's state")
	}
	cmd.AddCommand(fixture...)
	cmd.AddCommand(newCheckCommand(), newControlPlaneCommand(), newKubeletCommand())
	return cmd
}

func newUpCommand(o *physical.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring up the clusters, or what is missing of them",
		Long: `Bring up the clusters, or what is missing of them, and wait until their nodes
are ready. The kubeconfig of each cluster is <dir>/<cluster>/kubeconfig; it works
in the network namespace:

  nsenter --net=/run/netns/` + physical.DefaultNetns + ` kubectl --kubeconfig <dir>/us-east1/kubeconfig get nodes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := physical.Up(cmd.Context(), *o)
			if err != nil {
				return err
			}
			for _, c := range f.Clusters() {
				fmt.Fprintf(cmd.OutOrStdout(), "%s\t%s\n", c.Name(), c.Kubeconfig())
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&o.BinDir, "bin-dir", o.BinDir, "directory of the binaries physical, demoapp and pause")
	cmd.Flags().StringVar(&o.Netns, "netns", physical.DefaultNetns, "name of the network namespace")
	cmd.Flags().StringSliceVar(&o.Clusters, "clusters", physical.DefaultClusters(), "names of the clusters")
	cmd.Flags().StringVar(&o.Runtime, "runtime", o.Runtime, "OCI runtime, runc or crun (default is what is installed, runc first)")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", o.Timeout, "time for each cluster to get ready (default 2m)")
	return cmd
}

func newDownCommand(o *physical.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop and remove the clusters; only logs stay",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := physical.Open(*o)
			if errors.Is(err, fs.ErrNotExist) {
				fmt.Fprintf(cmd.ErrOrStderr(), "physical: nothing to take down in %s\n", o.Dir)
				return nil
			}
			if err != nil {
				return err
			}
			return f.Down(cmd.Context())
		},
	}
}

func newStopCommand(o *physical.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "stop CLUSTER [COMPONENT...]",
		Short: "Switch off a cluster with its pods, or stop some of its components",
		Long: "Switch off a cluster with its pods, as if its machine had lost power, or stop some\nof its components: " +
			strings.Join(physical.Components(), ", ") + ". Pods survive without their components.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := openCluster(*o, args[0])
			if err != nil {
				return err
			}
			return c.Stop(cmd.Context(), args[1:]...)
		},
	}
}

func newStartCommand(o *physical.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "start CLUSTER",
		Short: "Start what does not run of a cluster and wait until its node is ready",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := openCluster(*o, args[0])
			if err != nil {
				return err
			}
			return c.Start(cmd.Context())
		},
	}
}

func newStatusCommand(o *physical.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what runs; exit code 1 unless everything does",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := physical.Open(*o)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "CLUSTER\tCOMPONENT\tPID\tLOG")
			down := 0
			for _, c := range f.Clusters() {
				for _, component := range physical.Components() {
					pid, err := c.Pid(component)
					if err != nil {
						return err
					}
					shown := fmt.Sprint(pid)
					if pid == 0 {
						down++
						shown = "-"
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", c.Name(), component, shown, c.LogFile(component))
				}
			}
			if err := w.Flush(); err != nil {
				return fmt.Errorf("cannot show status: %w", err)
			}
			if down > 0 {
				return fmt.Errorf("%d components do not run", down)
			}
			return nil
		},
	}
}

func newCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Say what this machine lacks to run the clusters",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := physical.Check(""); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "This machine has what the clusters need.")
			return nil
		},
	}
}

func openCluster(o physical.Options, name string) (*physical.Cluster, error) {
	f, err := physical.Open(o)
	if err != nil {
		return nil, err
	}
	c := f.Cluster(name)
	if c == nil {
		names := []string{}
		for _, c := range f.Clusters() {
			names = append(names, c.Name())
		}
		return nil, fmt.Errorf("no cluster %q, there are %s", name, strings.Join(names, ", "))
	}
	return c, nil
}
