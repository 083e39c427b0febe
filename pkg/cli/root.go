package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/kubeconfig"
	"github.com/13eedeaf/kcp/pkg/cli/login"
	"github.com/13eedeaf/kcp/pkg/cli/nearest"
	"github.com/13eedeaf/kcp/pkg/cli/printer"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/cli/session"
	"github.com/13eedeaf/kcp/pkg/cli/tokencache"
)

// Run executes a command line (without the program's name) and returns the exit code.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{
		console: &console.Console{In: stdin, Out: stdout, Err: stderr},
		clock:   clock.RealClock{},
	}
	root := a.command()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	p := a.describe(err)
	if p.HintText() == "" && !p.IsCancelled() {
		hint := "look for what is wrong: kubectl kcp doctor"
		if p.Code() == problem.ExitUsage {
			hint = cmd.CommandPath() + " --help"
		}
		_ = p.Hint("%s", hint) // p itself, with the hint
	}
	a.console.Problem(p)
	return p.Code()
}

// app is what all commands share: the seams and the flags that every command has.
type app struct {
	console *console.Console
	clock   clock.WithTicker

	kubeconfig string
	context    string
	workspace  string
	verbosity  int
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "kcp",
		Short: "Work with kcp: log in, choose a workspace, run workloads on many clusters",
		Long: `Work with kcp: log in, choose a workspace, run workloads on many clusters.

A workspace is a Kubernetes API of your own. After "kubectl kcp login" you stand in your
home workspace, and every kubectl command works there.

Exit codes: 0 done; 1 failed; 2 called wrongly, or cancelled; 4 log in first.`,
		Example: `  kubectl kcp login https://kcp.example.com:6443
  kubectl kcp ws
  kubectl kcp ws create team --use`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl kcp"},
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          group,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			switch a.console.Color {
			case "auto", "always", "never":
				return nil
			}
			return problem.Usage("--color %q is not one of auto, always, never", a.console.Color)
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.kubeconfig, "kubeconfig", "", "kubeconfig file to use instead of $KUBECONFIG or ~/.kube/config")
	flags.StringVar(&a.console.Color, "color", "auto", "when to use colours: auto, always, never")
	flags.IntVarP(&a.verbosity, "v", "v", 0, "1 or more shows each request to the server, on stderr")
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError(cmd, "%s", err.Error()) })
	root.AddCommand(
		a.login(), a.logout(), a.getToken(),
		a.workspaces(),
		a.cordon(), a.uncordon(), a.drain(), a.explain(), a.workloads(), a.locations(),
		a.doctor(), a.version(),
	)
	a.completions(root)
	return root
}

// group is what a command does that only holds others.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	err := usageError(cmd, "unknown command %q for %q", args[0], cmd.CommandPath())
	names := []string{}
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	if near := nearest.To(args[0], names); near != "" {
		return err.Hint("did you mean %q? %s %s --help", near, cmd.CommandPath(), near)
	}
	return err
}

// usageError says that a command was called wrongly, and how to call it.
func usageError(cmd *cobra.Command, format string, args ...any) *problem.Problem {
	return problem.Usage(format, args...).WithUsage(cmd.UseLine()).Hint("%s --help", cmd.CommandPath())
}

// exactArgs wants one argument for each name.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == len(names):
			return nil
		case len(args) > len(names):
			return usageError(cmd, "%q is one argument too many", args[len(names)])
		}
		return usageError(cmd, "argument %s is missing", names[len(args)])
	}
}

// atMostOne is for a command with one argument that may be left out.
func atMostOne(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usageError(cmd, "%q is one argument too many", args[1])
	}
	return nil
}

// describe explains an error. The kubeconfig is read again for the hint on how to log
// in; what is wrong with it then is not the news.
func (a *app) describe(err error) *problem.Problem {
	about := problem.About{}
	if cfg, loadErr := a.store().Load(); loadErr == nil {
		about.Login = session.LoginCommand(cfg, a.context)
	}
	return problem.Describe(err, about)
}

func (a *app) store() *kubeconfig.Store { return kubeconfig.NewStore(a.kubeconfig) }

// contextFlags adds the flags of commands that work in a workspace.
func (a *app) contextFlags(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&a.context, "context", "", "kubeconfig context to use instead of the current one")
	cmd.PersistentFlags().StringVar(&a.workspace, "workspace", "", "path of the workspace to work in instead of the current one")
}

// outputFlags gives a command -o with these formats and, where tables are among them,
// --no-headers. What it returns makes the printer, once the flags were read.
func (a *app) outputFlags(cmd *cobra.Command, formats ...string) func() (printer.Printer, error) {
	var f printer.Format
	cmd.Flags().StringVarP(&f.Output, "output", "o", "", formatsPrefix+strings.Join(formats, ", "))
	if slices.Contains(formats, "table") {
		cmd.Flags().BoolVar(&f.NoHeaders, "no-headers", false, "leave the headers of a table out")
	}
	return func() (printer.Printer, error) {
		out := printer.Printer{Out: a.console.Out, Scheme: session.Scheme, Format: f}
		if f.Output == "" || slices.Contains(formats, f.Output) {
			return out, nil
		}
		return out, problem.Usage("output format %q is not one of %s", f.Output, strings.Join(formats, ", "))
	}
}

// act makes a command do something in the workspace that the flags and the kubeconfig say.
func (a *app) act(cmd *cobra.Command, do func(ctx context.Context, s *session.Session, args []string) error) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := a.open(cmd.Context())
		if err != nil {
			return err
		}
		return do(cmd.Context(), s, args)
	}
}

// show is act for commands that list or show something, in each of printer.Formats.
func (a *app) show(cmd *cobra.Command, do func(ctx context.Context, s *session.Session, out printer.Printer, args []string) error) {
	output := a.outputFlags(cmd, printer.Formats...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		out, err := output()
		if err != nil {
			return err
		}
		s, err := a.open(cmd.Context())
		if err != nil {
			return err
		}
		return do(cmd.Context(), s, out, args)
	}
}

// open opens the workspace that the flags and the kubeconfig say.
func (a *app) open(ctx context.Context) (*session.Session, error) {
	tokens, err := a.tokens()
	if err != nil {
		return nil, err
	}
	o := session.Options{Config: a.store(), Context: a.context, Workspace: a.workspace, Console: a.console, Tokens: tokens}
	if a.verbosity > 0 {
		o.Trace = a.console.Err
	}
	return session.Open(ctx, o)
}

func (a *app) tokens() (*login.GetToken, error) {
	cache, err := tokencache.New("")
	if err != nil {
		return nil, err
	}
	return &login.GetToken{Console: a.console, Clock: a.clock, Cache: cache}, nil
}

// self returns the command by which kubectl finds this program: its name where that is
// on the PATH, else where it is.
func self() (string, error) {
	if _, err := exec.LookPath(kubeconfig.Plugin); err == nil {
		return kubeconfig.Plugin, nil
	}
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot find out where %s is: %w", kubeconfig.Plugin, err)
	}
	return path, nil
}
