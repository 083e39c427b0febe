// Package problem turns errors into what a person reads: one line that quotes the
// input and names no Go type, a hint with a command that can be run, and an exit code.
//
// Commands return a *Problem where they know best what happened; Describe explains
// everything else (answers of the API server, TLS, network).
package problem

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/13eedeaf/kcp/pkg/exitcode"
)

// Exit codes of the command line.
const (
	// ExitError means that the command failed.
	ExitError = exitcode.Error
	// ExitUsage means that the command was called wrongly, or cancelled.
	ExitUsage = exitcode.Usage
	// ExitLogin means that the user has to log in first.
	ExitLogin = exitcode.Login
)

// Problem is an error for people.
type Problem struct {
	message string
	hint    string
	code    int
	usage   string
	cause   error

	cancelled bool
}

// New returns a problem with exit code ExitError.
func New(format string, args ...any) *Problem {
	return &Problem{message: oneLine(fmt.Sprintf(format, args...)), code: ExitError}
}

// Usage returns a problem of how the command was called.
func Usage(format string, args ...any) *Problem {
	p := New(format, args...)
	p.code = ExitUsage
	return p
}

// LoginNeeded returns a problem that a login solves.
func LoginNeeded(format string, args ...any) *Problem {
	p := New(format, args...)
	p.code = ExitLogin
	return p
}

// Cancelled says that the user stopped the command.
func Cancelled(format string, args ...any) *Problem {
	p := Usage(format, args...)
	p.cancelled = true
	return p
}

// IsCancelled reports whether the user stopped the command, which needs no hint.
func (p *Problem) IsCancelled() bool { return p.cancelled }

// Hint sets the hint and returns p. The hint ends in a command that can be run.
func (p *Problem) Hint(format string, args ...any) *Problem {
	p.hint = oneLine(fmt.Sprintf(format, args...))
	return p
}

// Because records the error underneath, for errors.Is and errors.As. It is not shown.
func (p *Problem) Because(err error) *Problem {
	p.cause = err
	return p
}

// WithUsage adds the usage line of the command that was called wrongly.
func (p *Problem) WithUsage(line string) *Problem {
	p.usage = line
	return p
}

// Error returns the message without the hint.
func (p *Problem) Error() string { return p.message }

// Unwrap returns the error underneath, if one was recorded.
func (p *Problem) Unwrap() error { return p.cause }

// Code returns the exit code.
func (p *Problem) Code() int { return p.code }

// HintText returns the hint, or "".
func (p *Problem) HintText() string { return p.hint }

// UsageText returns the usage line, or "".
func (p *Problem) UsageText() string { return p.usage }

// oneLine joins the lines of a message that comes from elsewhere and drops what would
// drive the terminal.
func oneLine(s string) string {
	fields := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range fields {
		fields[i] = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) && r != '\t' {
				return -1
			}
			return r
		}, strings.TrimSpace(fields[i]))
	}
	return strings.Join(fields, "; ")
}
