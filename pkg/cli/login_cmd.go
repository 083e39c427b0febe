package cli

import (
	"github.com/spf13/cobra"

	"github.com/13eedeaf/kcp/pkg/cli/login"
	"github.com/13eedeaf/kcp/pkg/cli/oidcflow"
	"github.com/13eedeaf/kcp/pkg/cli/tokencache"
	"github.com/13eedeaf/kcp/pkg/cli/trust"
)

func trustFlags(cmd *cobra.Command, r *trust.Rules) {
	cmd.Flags().StringVar(&r.Fingerprint, "ca-fingerprint", "", "trust the CA with this fingerprint (sha256:HEX), which the server presents")
	cmd.Flags().StringVar(&r.File, "certificate-authority", "", "trust the CAs in this PEM file")
	cmd.Flags().BoolVar(&r.Insecure, "insecure-skip-tls-verify", false, "trust any certificate: whoever answers gets your credentials")
}

func (a *app) login() *cobra.Command {
	var in login.Input
	cmd := &cobra.Command{
		Use:   "login URL",
		Short: "Log in to a kcp server and enter your home workspace",
		Long: `Log in to a kcp server in the browser and enter your home workspace.

The server says where to log in. A certificate that the system does not trust needs
--ca-fingerprint, which "kcp start" prints, or --certificate-authority.

Without a display and over SSH, the command shows a code to enter in a browser elsewhere.
To use a browser on this machine all the same, name it: --browser-command, $BROWSER, or
--no-browser to open the page yourself.`,
		Example: `  kubectl kcp login https://kcp.example.com:6443
  kubectl kcp login https://kcp.example.com:6443 --device
  kubectl kcp login https://127.0.0.1:6443 --ca-fingerprint sha256:0f1e…
  kubectl kcp login https://127.0.0.1:6443 --certificate-authority ca.crt --no-browser`,
		Args: exactArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Server = args[0]
			cache, err := tokencache.New("")
			if err != nil {
				return err
			}
			command, err := self()
			if err != nil {
				return err
			}
			use := &login.Login{Console: a.console, Clock: a.clock, Cache: cache, Config: a.store(), Self: command}
			return use.Do(cmd.Context(), in)
		},
	}
	trustFlags(cmd, &in.Trust)
	cmd.Flags().StringVar(&in.Browser.Command, "browser-command", "", "program that opens the login page, instead of $BROWSER or the system's")
	cmd.Flags().BoolVar(&in.Browser.Device, "device", false, "show a code to enter in a browser on any device; the default without a display and over SSH")
	cmd.Flags().BoolVar(&in.Browser.None, "no-browser", false, "print the address of the login page instead of opening it")
	cmd.Flags().IntSliceVar(&in.Browser.Ports, "listen-port", oidcflow.DefaultPorts, "ports on 127.0.0.1 to try for the browser's answer; 0 is any free one")
	cmd.Flags().DurationVar(&in.Browser.Timeout, "timeout", login.DefaultTimeout, "how long to wait for the login in the browser")
	return cmd
}

func (a *app) logout() *cobra.Command {
	var in login.LogoutInput
	cmd := &cobra.Command{
		Use:   "logout",
		Short: "Forget the login of the current context",
		Long: `Forget the login of the current context.

The tokens are removed here and revoked at the issuer. The kubeconfig stays as it is.`,
		Example: `  kubectl kcp logout
  kubectl kcp logout --context kcp-kcp.example.com-6443`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cache, err := tokencache.New("")
			if err != nil {
				return err
			}
			use := &login.Logout{Console: a.console, Clock: a.clock, Cache: cache, Config: a.store()}
			return use.Do(cmd.Context(), in)
		},
	}
	cmd.Flags().StringVar(&in.Context, "context", "", "kubeconfig context to log out of instead of the current one")
	return cmd
}

func (a *app) getToken() *cobra.Command {
	var who login.Identity
	cmd := &cobra.Command{
		Use:   "get-token",
		Short: "Print a token for kubectl, which calls this command itself",
		Long: `Print a token for kubectl, which calls this command itself (exec credential plugin).

"kubectl kcp login" writes the flags into the kubeconfig. The token is refreshed when it
has expired. Where that needs a new login and there is no terminal, the exit code is 4.`,
		Example: `  kubectl kcp get-token --server=https://kcp.example.com:6443 \
      --issuer=https://kcp.example.com:6443/idp --client-id=kcp --user=SUBJECT`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			use, err := a.tokens()
			if err != nil {
				return err
			}
			return use.Do(cmd.Context(), who)
		},
	}
	trustFlags(cmd, &who.Trust)
	cmd.Flags().StringVar(&who.Server, "server", "", "address of the kcp server")
	cmd.Flags().StringVar(&who.Issuer, "issuer", "", "OpenID issuer that the login was made at")
	cmd.Flags().StringVar(&who.ClientID, "client-id", "", "client id at the issuer")
	cmd.Flags().StringVar(&who.User, "user", "", "the user's subject at the issuer")
	return cmd
}
