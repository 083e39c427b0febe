// Package console is the only way in which commands talk to the person in front of
// them: data on stdout, everything else on stderr, colour only where it can be seen,
// questions only where someone can answer.
package console

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/13eedeaf/kcp/pkg/cli/problem"
)

// Console is the standard streams and what is known of them. The zero value is not
// usable; set the three streams.
type Console struct {
	In       io.Reader
	Out, Err io.Writer
	// Color is "auto", "always" or "never"; empty means auto.
	Color string
	// Getenv reads the environment; nil means os.Getenv.
	Getenv func(string) string
}

// Env returns an environment variable.
func (c *Console) Env(name string) string {
	if c.Getenv == nil {
		return os.Getenv(name)
	}
	return c.Getenv(name)
}

// Print writes a line of data to stdout.
func (c *Console) Print(format string, args ...any) {
	// A reader that went away (head, less) is no error of ours.
	_, _ = fmt.Fprintf(c.Out, format+"\n", args...)
}

// Note writes a line to stderr.
func (c *Console) Note(format string, args ...any) {
	_, _ = fmt.Fprintf(c.Err, format+"\n", args...)
}

// Warn writes a warning to stderr.
func (c *Console) Warn(format string, args ...any) {
	c.Note("%s", c.paint(c.Err, yellow, "warning: ")+fmt.Sprintf(format, args...))
}

// Problem writes an error, its usage line and its hint to stderr.
func (c *Console) Problem(p *problem.Problem) {
	c.Note("%s", c.paint(c.Err, red, "error: ")+p.Error())
	if p.UsageText() != "" {
		c.Note("usage: %s", p.UsageText())
	}
	if p.HintText() != "" {
		c.Note("%s", c.paint(c.Err, cyan, "hint: ")+p.HintText())
	}
}

// Confirm asks a question that must be answered with y. Without a terminal on stdin it
// fails at once and shows the command that needs no answer.
func (c *Console) Confirm(ctx context.Context, question, command string) error {
	if !IsTerminal(c.In) {
		return problem.Usage("%s: no terminal to ask on", strings.TrimSuffix(question, "?")).Hint("to do it without being asked: %s", command)
	}
	_, _ = fmt.Fprintf(c.Err, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(c.In).ReadString('\n') // end of input is "no"
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		c.Note("")
		return ctx.Err()
	case a := <-answer:
		if a == "y" || a == "yes" {
			return nil
		}
		return problem.Cancelled("cancelled, nothing was changed")
	}
}

// Good returns s in the colour of success, where stdout shows colours.
func (c *Console) Good(s string) string { return c.paint(c.Out, green, s) }

// Doubtful returns s in the colour of a warning, where stdout shows colours.
func (c *Console) Doubtful(s string) string { return c.paint(c.Out, yellow, s) }

// Bad returns s in the colour of an error, where stdout shows colours.
func (c *Console) Bad(s string) string { return c.paint(c.Out, red, s) }

type colour string

const (
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	cyan   colour = "36"
)

func (c *Console) paint(w io.Writer, col colour, s string) string {
	if !c.coloured(w) {
		return s
	}
	return "\x1b[" + string(col) + "m" + s + "\x1b[0m"
}

func (c *Console) coloured(w io.Writer) bool {
	switch c.Color {
	case "always":
		return true
	case "never":
		return false
	}
	return c.Env("NO_COLOR") == "" && c.Env("TERM") != "dumb" && IsTerminal(w)
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
