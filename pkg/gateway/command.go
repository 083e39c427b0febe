package gateway

import (
	"flag"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/13eedeaf/kcp/pkg/exitcode"
	"github.com/13eedeaf/kcp/pkg/heap"
)

// pace leaves much room for garbage. What lives is little, a few MiB with a small table, so
// that by Go's default a busy gateway would spend a fifth of its time on collections.
var pace = heap.Pace{AtLeast: 64 << 20, Percent: 100}

// NewCommand returns `kcp gateway`.
func NewCommand() *cobra.Command {
	options := NewOptions()
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Serve HTTP for the Ingresses of all workspaces",
		Long: `Serve HTTP for the Ingresses of all workspaces.

The gateway follows the server through a virtual workspace and sends requests straight to
the pods, wherever they run. It goes on serving while the server is away, and starts with
the last routing table when the server cannot be reached. On SIGTERM it accepts nothing new
and ends when all requests and streams have ended, or after --shutdown-grace.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			if err := options.Complete(); err != nil {
				return err
			}
			if err := options.Validate(); err != nil {
				return exitcode.Wrongly(err)
			}
			config, err := options.Config()
			if err != nil {
				return err
			}
			heap.Keep(pace)
			g, err := New(config)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), g.Describe()); err != nil {
				return err
			}
			return g.Run(ctx)
		},
	}
	options.AddFlags(cmd.Flags())
	logging := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(logging)
	cmd.Flags().AddGoFlag(logging.Lookup("v"))
	return cmd
}
