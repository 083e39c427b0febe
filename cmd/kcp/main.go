// Command kcp is the workspace server and its companions.
package main

import (
	"os"

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/13eedeaf/kcp/pkg/exitcode"
	"github.com/13eedeaf/kcp/pkg/gateway"
	"github.com/13eedeaf/kcp/pkg/idp"
)

func main() {
	root := &cobra.Command{
		Use:           "kcp",
		Short:         "A Kubernetes-compatible API server for many isolated workspaces",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newStartCommand(), gateway.NewCommand(), idp.NewCommand(), newVersionCommand())
	exitcode.Mark(root)
	cmd, err := root.ExecuteContextC(genericapiserver.SetupSignalContext())
	os.Exit(exitcode.Report(os.Stderr, cmd, err))
}
