package console

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
)

// ErrNoBrowser means that nothing is known that could open a page.
var ErrNoBrowser = errors.New("no browser can be opened here")

// Browser opens a page. Its methods return at once.
type Browser interface {
	// Open starts a browser. done receives the end of the program that was started:
	// nil, or why it failed; many such programs end as soon as a window is open.
	Open(url string) (done <-chan error, err error)
}

// SystemBrowser opens pages with Command, else $BROWSER, else the system's opener.
type SystemBrowser struct {
	Console *Console
	// Command is a program and its arguments, separated by spaces. %s stands for the
	// address, which is appended where no %s is.
	Command string
}

// Open implements Browser. The child's output goes to stderr, since stdout may carry a
// credential. The child is not ended with this process: it may be the browser itself.
func (b SystemBrowser) Open(url string) (<-chan error, error) {
	argv := b.command()
	if len(argv) == 0 {
		return nil, ErrNoBrowser
	}
	cmd := exec.Command(argv[0], withURL(argv[1:], url)...) //nolint:noctx // it outlives this process
	cmd.Stdout, cmd.Stderr = b.Console.Err, b.Console.Err
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %q: %w", argv[0], err)
	}
	done := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		if err != nil {
			err = fmt.Errorf("%q failed: %w", argv[0], err)
		}
		done <- err
	}()
	return done, nil
}

// Here reports whether a browser that Open starts would be in front of the person: one
// that they named, or one on a display of this machine. Over SSH the display is
// elsewhere.
func (b SystemBrowser) Here() bool {
	if b.Command != "" || len(b.fromEnvironment()) > 0 {
		return true
	}
	return b.Console.Env("SSH_CONNECTION") == "" && (windows || macOS || b.display())
}

const (
	windows = runtime.GOOS == "windows"
	macOS   = runtime.GOOS == "darwin"
)

func (b SystemBrowser) display() bool {
	return b.Console.Env("DISPLAY") != "" || b.Console.Env("WAYLAND_DISPLAY") != ""
}

func (b SystemBrowser) command() []string {
	if b.Command != "" {
		return strings.Fields(b.Command)
	}
	if argv := b.fromEnvironment(); len(argv) > 0 {
		return argv
	}
	switch {
	case macOS:
		return []string{"open"}
	case windows:
		return []string{"rundll32", "url.dll,FileProtocolHandler"}
	case !b.display():
		return nil // xdg-open would start a text browser on a terminal that is in use
	}
	if _, err := exec.LookPath("xdg-open"); err != nil {
		return nil
	}
	return []string{"xdg-open"}
}

// fromEnvironment returns the first program of $BROWSER, a colon-separated list, that
// exists.
func (b SystemBrowser) fromEnvironment() []string {
	for _, candidate := range strings.Split(b.Console.Env("BROWSER"), ":") {
		argv := strings.Fields(candidate)
		if len(argv) == 0 {
			continue
		}
		if _, err := exec.LookPath(argv[0]); err == nil {
			return argv
		}
	}
	return nil
}

func withURL(args []string, url string) []string {
	out := make([]string, 0, len(args)+1)
	replaced := false
	for _, a := range args {
		replaced = replaced || strings.Contains(a, "%s")
		out = append(out, strings.ReplaceAll(a, "%s", url))
	}
	if !replaced {
		out = append(out, url)
	}
	return out
}
