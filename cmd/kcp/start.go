package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	"k8s.io/component-base/term"

	"github.com/13eedeaf/kcp/pkg/exitcode"
	"github.com/13eedeaf/kcp/pkg/server"
	"github.com/13eedeaf/kcp/pkg/server/options"
	"github.com/13eedeaf/kcp/pkg/server/pki"
)

func newStartCommand() *cobra.Command {
	o := options.New()
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Run the workspace server",
		Long: `Run the workspace server. Without flags it keeps everything, its etcd included, in
the directory .kcp, listens on https://127.0.0.1:6443, and lets the users log in whom
"kcp idp add-user" has added.`,
		Example: `  # Try it on a laptop; it says how to add a user and log in
  kcp start

  # Serve a network, with your own identity provider and etcd
  kcp start --bind-address 0.0.0.0 --external-hostname kcp.example.com \
    --authentication-config authn.yaml --login-issuer https://login.example.com \
    --etcd-servers https://etcd.example.com:2379`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("embedded-idp") {
				// A server that nobody told whom to trust can still be logged in to.
				o.EmbeddedIdentityProvider = o.AuthenticationConfig == "" && o.LoginIssuer == ""
			}
			return start(cmd.Context(), o, cmd.ErrOrStderr())
		},
	}
	var sections cliflag.NamedFlagSets
	o.AddFlags(&sections)
	globalflag.AddGlobalFlags(sections.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, fs := range sections.FlagSets {
		cmd.Flags().AddFlagSet(fs)
	}
	cols, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, sections, cols)
	// Which leaves the examples out.
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		help(cmd, args)
		fmt.Fprintf(cmd.OutOrStdout(), "\nExamples:\n\n%s\n", cmd.Example)
	})
	return cmd
}

func start(ctx context.Context, o *options.Options, out io.Writer) error {
	// The server's own client need not log the warnings that the server sends it.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	if err := o.ApplyLogging(); err != nil {
		return exitcode.Wrongly(err)
	}
	completed, err := o.Complete()
	if err != nil {
		return exitcode.Wrongly(err)
	}
	if err := errors.Join(completed.Validate()...); err != nil {
		return exitcode.Wrongly(err)
	}
	s, err := server.New(ctx, completed)
	if err != nil {
		return err
	}
	go func() {
		select {
		case <-s.Ready():
			announce(out, completed, s)
		case <-ctx.Done():
		}
	}()
	return s.Run(ctx)
}

// announce tells a person what to do next.
func announce(out io.Writer, o options.Completed, s *server.Server) {
	fmt.Fprintf(out, "kcp is ready at %s; administrators: export KUBECONFIG=%s\n", s.URL, filepath.Join(o.RootDirectory, pki.AdminKubeconfig))
	if !o.EmbeddedIdentityProvider {
		return
	}
	fmt.Fprintf(out, "Add a user:  kcp idp add-user NAME --email NAME@example.com --root-directory %s\n", o.RootDirectory)
	if o.ControlPlane.SecureServing.ServerCert.CertKey.CertFile != s.PKI.ServingCertFile {
		// A certificate of the operator's own, whose authority only the operator knows.
		fmt.Fprintf(out, "Log in:      kubectl kcp login %s\n", s.URL)
		return
	}
	fmt.Fprintf(out, "Log in:      kubectl kcp login %s --ca-fingerprint %s\n", s.URL, pki.Fingerprint(s.PKI.CA))
}
