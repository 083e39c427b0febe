package cli

import (
	"github.com/spf13/cobra"

	"github.com/13eedeaf/kcp/pkg/cli/location"
	"github.com/13eedeaf/kcp/pkg/cli/printer"
)

func (a *app) locations() *cobra.Command {
	var format printer.Format
	cmd := &cobra.Command{
		Use:     "locations [NAME...]",
		Aliases: []string{"location"},
		Short:   "List the locations that the current workspace can use",
		Example: `  kubectl kcp locations
  kubectl kcp locations default -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := format.Validate(); err != nil {
				return err
			}
			s, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			use := &location.List{Console: a.console, Session: s, Printer: a.printer(format), Now: a.clock.Now}
			return use.Do(cmd.Context(), args)
		},
	}
	outputFlags(cmd, &format)
	a.contextFlags(cmd)
	return cmd
}
