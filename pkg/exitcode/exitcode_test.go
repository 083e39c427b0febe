package exitcode_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/13eedeaf/kcp/pkg/exitcode"
)

// command is a program with a command, and one that only holds another.
func command() *cobra.Command {
	root := &cobra.Command{Use: "prog", SilenceErrors: true, SilenceUsage: true}
	run := &cobra.Command{Use: "run", Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
		switch args[0] {
		case "fails":
			return errors.New("the disk is full")
		case "wrongly":
			return fmt.Errorf("start: %w", exitcode.Wrongly(errors.Join(errors.New("--a is wrong"), errors.New("--b too"))))
		}
		return exitcode.Wrongly(nil)
	}}
	run.Flags().Int("port", 1, "")
	group := &cobra.Command{Use: "group"}
	group.AddCommand(&cobra.Command{Use: "member", Run: func(*cobra.Command, []string) {}})
	root.AddCommand(run, group)
	exitcode.Mark(root)
	return root
}

func TestReport(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"done":                  {[]string{"run", "well"}, 0, ""},
		"failed":                {[]string{"run", "fails"}, 1, "error: the disk is full\n"},
		"found wrong later":     {[]string{"run", "wrongly"}, 2, "error: start: --a is wrong\nerror: --b too\nhint: prog run --help\n"},
		"unknown flag":          {[]string{"run", "--x"}, 2, "error: unknown flag: --x\nhint: prog run --help\n"},
		"malformed flag":        {[]string{"run", "--port", "x"}, 2, "error: invalid argument \"x\" for \"--port\" flag: strconv.ParseInt: parsing \"x\": invalid syntax\nhint: prog run --help\n"},
		"argument missing":      {[]string{"run"}, 2, "error: accepts 1 arg(s), received 0\nhint: prog run --help\n"},
		"unknown command":       {[]string{"rnu"}, 2, "error: unknown command \"rnu\" for \"prog\"\nhint: prog --help\n"},
		"unknown below a group": {[]string{"group", "none"}, 2, "error: unknown command \"none\" for \"prog group\"\nhint: prog group --help\n"},
		"a group alone":         {[]string{"group"}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := command()
			root.SetArgs(tc.args)
			root.SetOut(&bytes.Buffer{})
			cmd, err := root.ExecuteContextC(t.Context())
			var out bytes.Buffer
			if got := exitcode.Report(&out, cmd, err); got != tc.code {
				t.Errorf("exit code %d, want %d", got, tc.code)
			}
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("what it says (-want +got):\n%s", diff)
			}
		})
	}
}
