package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/13eedeaf/kcp/pkg/version"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			v := version.Get()
			fmt.Fprintf(cmd.OutOrStdout(), "kcp %s (Kubernetes %s, %s)\n", v.Version, v.Kubernetes, v.Go)
		},
	}
}
