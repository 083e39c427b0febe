// Package exitcode says how this project's programs end, the same for all of them: 0
// done, 1 failed, 2 called wrongly (or cancelled), 4 log in first. A program called
// wrongly has changed nothing.
package exitcode

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

const (
	// Error means that the program failed.
	Error = 1
	// Usage means that it was called wrongly, or cancelled.
	Usage = 2
	// Login means that the user has to log in first.
	Login = 4
)

// wrongly marks an error of whoever called the program.
type wrongly struct{ error }

func (w wrongly) Unwrap() error { return w.error }

// Wrongly marks an error as one of the command line; nil stays nil.
func Wrongly(err error) error {
	if err == nil {
		return nil
	}
	return wrongly{err}
}

// Of returns the exit code for what a command returned.
func Of(err error) int {
	if err == nil {
		return 0
	}
	if _, ok := errors.AsType[wrongly](err); ok {
		return Usage
	}
	return Error
}

// Mark makes what cobra finds wrong with a command line known to Of: flags, arguments, and
// commands that do not exist, below commands that only hold others too.
func Mark(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Wrongly(err) })
	args := cmd.Args
	if !cmd.Runnable() {
		args = cobra.NoArgs
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if args != nil {
		cmd.Args = func(cmd *cobra.Command, given []string) error { return Wrongly(args(cmd, given)) }
	}
	for _, child := range cmd.Commands() {
		Mark(child)
	}
}

// Report writes an error of a command for a person, one line for each that was joined, and
// returns the exit code.
func Report(w io.Writer, cmd *cobra.Command, err error) int {
	code := Of(err)
	if err != nil {
		// There is nowhere to report that this cannot be written.
		_, _ = fmt.Fprintf(w, "error: %s\n", strings.ReplaceAll(err.Error(), "\n", "\nerror: "))
	}
	if code == Usage {
		_, _ = fmt.Fprintf(w, "hint: %s --help\n", cmd.CommandPath())
	}
	return code
}
