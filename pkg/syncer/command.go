package syncer

import (
	"flag"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/13eedeaf/kcp/pkg/exitcode"
	"github.com/13eedeaf/kcp/pkg/version"
)

// NewCommand returns the command of the syncer's binary.
func NewCommand() *cobra.Command {
	o := NewOptions()
	cmd := &cobra.Command{
		Use:   "syncer",
		Short: "Run in a physical cluster what the control plane assigns to it",
		Long: `The syncer pulls the namespaces that are assigned to one SyncTarget, runs them in a
physical cluster and reports back. It calls the control plane, never the other way round.
The manifest that "kubectl kcp workload sync" prints runs it with the right flags.`,
		Example: `  syncer --from-kubeconfig kcp.kubeconfig --to-kubeconfig cluster.kubeconfig \
    --sync-target-name us-east1 --sync-target-cluster bcdfghjklmnpqrst \
    --sync-target-uid 5d0f6ad5-5c0e-4e5b-9d2a-0f4c3a6a1b2c`,
		Version:       version.Get().Version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			completed := o.Complete()
			if err := completed.Validate(); err != nil {
				return exitcode.Wrongly(err)
			}
			config, err := completed.Config()
			if err != nil {
				return err
			}
			s, err := New(config)
			if err != nil {
				return err
			}
			return s.Run(cmd.Context())
		},
	}
	cmd.SetVersionTemplate(fmt.Sprintf("syncer {{.Version}} (Kubernetes %s, %s)\n", version.Get().Kubernetes, version.Get().Go))
	o.AddFlags(cmd.Flags())
	addVerbosity(cmd)
	return cmd
}

// addVerbosity adds -v, and none of klog's other flags.
func addVerbosity(cmd *cobra.Command) {
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	cmd.Flags().AddGoFlag(fs.Lookup("v"))
}
