package cli

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/13eedeaf/kcp/pkg/cli/console"
)

// everyCommand calls f with each command that a person can run.
func everyCommand(t *testing.T, f func(t *testing.T, path string, cmd *cobra.Command)) {
	root := (&app{console: &console.Console{}}).command()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		t.Run(strings.ReplaceAll(cmd.CommandPath(), " ", "_"), func(t *testing.T) { f(t, cmd.CommandPath(), cmd) })
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root)
}

// TestHelp checks what --help says of every command.
func TestHelp(t *testing.T) {
	everyCommand(t, func(t *testing.T, path string, cmd *cobra.Command) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("its short help is %q, want one sentence without a full stop", cmd.Short)
		}
		short := strings.NewReplacer("kubectl kcp workspace", "kubectl kcp ws").Replace(path)
		if !strings.Contains(cmd.Example, path) && !strings.Contains(cmd.Example, short) {
			t.Errorf("its example does not show %q:\n%s", path, cmd.Example)
		}
		if use := cmd.UseLine(); !strings.HasPrefix(use, "kubectl kcp") {
			t.Errorf("its usage line is %q, want it to begin with %q", use, "kubectl kcp")
		}
	})
}

// TestFlags checks that every flag explains itself and that none takes a secret, which
// would stand in the list of processes and in the shell's history.
func TestFlags(t *testing.T) {
	secret := regexp.MustCompile(`(?i)token|password|secret|credential`)
	everyCommand(t, func(t *testing.T, _ string, cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" || strings.HasSuffix(f.Usage, ".") {
				t.Errorf("--%s: its help is %q, want words without a full stop", f.Name, f.Usage)
			}
			if secret.MatchString(f.Name) {
				t.Errorf("--%s takes a secret", f.Name)
			}
		})
	})
}

// TestArgumentsComplete finds commands whose arguments nobody completes; names of what
// is to be made cannot be.
func TestArgumentsComplete(t *testing.T) {
	fresh := []string{"kubectl kcp login", "kubectl kcp workspace create"}
	everyCommand(t, func(t *testing.T, path string, cmd *cobra.Command) {
		takes := len(strings.Fields(cmd.Use)) > 1
		if completes := cmd.ValidArgsFunction != nil; takes && completes == slices.Contains(fresh, path) {
			t.Errorf("%q completes its argument: %v; see completions", cmd.Use, completes)
		}
	})
}

// TestFlagValuesComplete finds flags whose values nobody completes; what a person makes
// up cannot be.
func TestFlagValuesComplete(t *testing.T) {
	free := []string{
		"v", "timeout", "depth", "listen-port", "ca-fingerprint", "browser-command", "labels", "syncer-image", "replicas",
		"kcp-url", "server", "issuer", "client-id", "user",
	}
	everyCommand(t, func(t *testing.T, _ string, cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			_, completes := cmd.GetFlagCompletionFunc(f.Name)
			if takes := f.NoOptDefVal == ""; takes && completes == slices.Contains(free, f.Name) {
				t.Errorf("--%s completes its values: %v; see app.flag", f.Name, completes)
			}
		})
	})
}
