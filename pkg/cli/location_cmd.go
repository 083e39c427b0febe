package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/13eedeaf/kcp/pkg/cli/location"
	"github.com/13eedeaf/kcp/pkg/cli/printer"
	"github.com/13eedeaf/kcp/pkg/cli/session"
)

func (a *app) locations() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "locations [NAME...]",
		Aliases: []string{"location"},
		Short:   "List the locations that the current workspace can use",
		Example: `  kubectl kcp locations
  kubectl kcp locations default -o json`,
	}
	a.show(cmd, func(ctx context.Context, s *session.Session, out printer.Printer, args []string) error {
		use := &location.List{Console: a.console, Session: s, Printer: out, Now: a.clock.Now}
		return use.Do(ctx, args)
	})
	a.contextFlags(cmd)
	return cmd
}
