// Command kcp is the workspace server and its companions.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"

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
	if err := root.ExecuteContext(genericapiserver.SetupSignalContext()); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}
