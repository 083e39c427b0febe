package main

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of clients, as in the kubelet's own main
	_ "k8s.io/component-base/metrics/prometheus/version"  // metric of the version, likewise
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"github.com/13eedeaf/kcp/test/physical/controlplane"
)

// runKubelet is the main function of upstream's kubelet.
func runKubelet(args []string) (code int) {
	// The root of the process; the kubelet makes its own signal context.
	cmd := kubelet.NewKubeletCommand(context.Background())
	cmd.SetArgs(args)
	return cli.Run(cmd)
}

// newKubeletCommand is only there to be listed; main takes the way around it.
func newKubeletCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kubelet [flags]",
		Short: "Run the kubelet (started by up)",
		Args:  cobra.ArbitraryArgs,
	}
}

func newControlPlaneCommand() *cobra.Command {
	o := controlplane.Options{}
	cmd := &cobra.Command{
		Use:   "controlplane",
		Short: "Run etcd, API server, controller manager and scheduler in one process (started by up)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return controlplane.Run(cmd.Context(), o)
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}
