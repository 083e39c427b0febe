package cli

import (
	"context"

	"github.com/spf13/cobra"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/13eedeaf/kcp/pkg/cli/doctor"
	"github.com/13eedeaf/kcp/pkg/cli/login"
)

func (a *app) doctor() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong between you and your workloads",
		Long: `Look for what is wrong between you and your workloads: the kubeconfig, the server, TLS,
clocks and versions, the login, the workspace, its locations and placements. What is
wrong comes with a hint. The exit code is 1 if a check failed.`,
		Example: `  kubectl kcp doctor
  kubectl kcp doctor -o json`,
		Args: exactArgs(),
	}
	output := a.outputFlags(cmd, "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out, err := output()
		if err != nil {
			return err
		}
		use := &doctor.Doctor{
			Console: a.console, Clock: a.clock, Config: a.store(), Printer: out,
			Context: a.context, Open: a.open, Login: a.loginState,
		}
		return use.Do(cmd.Context())
	}
	a.contextFlags(cmd)
	return cmd
}

// loginState says how long a user entry's login lasts. It asks nobody.
func (a *app) loginState(ctx context.Context, user *clientcmdapi.AuthInfo) (doctor.Login, error) {
	who, own := login.IdentityOf(user)
	if !own {
		return doctor.Login{}, nil
	}
	tokens, err := a.tokens()
	if err != nil {
		return doctor.Login{}, err
	}
	got, err := tokens.Token(ctx, who, false)
	if err != nil {
		return doctor.Login{}, err
	}
	return doctor.Login{Own: true, Expiry: got.Expiry, Renews: got.RefreshToken != ""}, nil
}
