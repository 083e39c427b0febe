package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/13eedeaf/kcp/pkg/cli/printer"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/version"
)

// versionTimeout bounds the question to a server that may be away.
const versionTimeout = 5 * time.Second

// versions is the output of version -o json.
type versions struct {
	Client version.Info     `json:"clientVersion"`
	Server *apiversion.Info `json:"serverVersion,omitempty"`
}

func (a *app) version() *cobra.Command {
	var clientOnly bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this program and of the server",
		Example: `  kubectl kcp version
  kubectl kcp version --client -o json`,
		Args: exactArgs(),
	}
	output := a.outputFlags(cmd, "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out, err := output()
		if err != nil {
			return err
		}
		return a.showVersions(cmd.Context(), out, clientOnly)
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "do not ask the server")
	cmd.Flags().StringVar(&a.context, "context", "", "kubeconfig context to use instead of the current one")
	return cmd
}

func (a *app) showVersions(ctx context.Context, out printer.Printer, clientOnly bool) error {
	both := versions{Client: version.Get()}
	var away *problem.Problem
	if !clientOnly {
		both.Server, away = a.serverVersion(ctx)
	}
	if out.Format.Structured() {
		if err := out.Value(both); err != nil {
			return err
		}
	} else {
		a.console.Print("Client: %s (Kubernetes %s)", both.Client.Version, both.Client.Kubernetes)
		if both.Server != nil {
			a.console.Print("Server: %s", both.Server.GitVersion)
		}
	}
	// The client's version is an answer, so an absent server is no failure.
	if away != nil {
		a.console.Note("Server: unknown (%s)", away.Error())
	}
	return nil
}

func (a *app) serverVersion(ctx context.Context) (*apiversion.Info, *problem.Problem) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	s, err := a.open(ctx)
	if err != nil {
		return nil, a.describe(err)
	}
	info, err := s.ServerVersion(ctx)
	if err != nil {
		return nil, a.describe(err)
	}
	return info, nil
}
