package console

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/13eedeaf/kcp/pkg/cli/problem"
)

// terminal returns a stream that is one: what is written to it can be read from it.
func terminal(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestColours(t *testing.T) {
	tty := terminal(t)
	for name, tc := range map[string]struct {
		color string
		env   map[string]string
		pipe  bool
		want  bool
	}{
		"terminal":          {want: true},
		"pipe":              {pipe: true},
		"NO_COLOR":          {env: map[string]string{"NO_COLOR": "1"}},
		"TERM=dumb":         {env: map[string]string{"TERM": "dumb"}},
		"--color=never":     {color: "never"},
		"--color=always":    {color: "always", pipe: true, want: true},
		"always beats them": {color: "always", env: map[string]string{"NO_COLOR": "1"}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Console{Out: tty, Color: tc.color, Getenv: func(k string) string { return tc.env[k] }}
			if tc.pipe {
				c.Out = &bytes.Buffer{}
			}
			want := "ok"
			if tc.want {
				want = "\x1b[32mok\x1b[0m"
			}
			if got := c.Good("ok"); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestConfirm(t *testing.T) {
	for name, tc := range map[string]struct {
		answer  string
		wantErr bool
	}{
		"yes":     {"y\n", false},
		"no":      {"n\n", true},
		"nothing": {"\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			tty := terminal(t)
			if _, err := tty.WriteString(tc.answer); err != nil { // the terminal echoes it
				t.Fatal(err)
			}
			var out bytes.Buffer
			c := &Console{In: tty, Err: &out}
			err := c.Confirm(t.Context(), "Delete it?", "delete it --yes")
			if (err != nil) != tc.wantErr {
				t.Errorf("err is %v, want one: %v", err, tc.wantErr)
			}
			if p, ok := errors.AsType[*problem.Problem](err); err != nil && (!ok || p.Code() != problem.ExitUsage) {
				t.Errorf("err is %v, want a problem with code %d", err, problem.ExitUsage)
			}
			if got := out.String(); got != "Delete it? [y/N] " {
				t.Errorf("asked %q", got)
			}
		})
	}
}

func TestHere(t *testing.T) {
	for name, tc := range map[string]struct {
		command string
		env     map[string]string
		want    bool
	}{
		"display":                    {env: map[string]string{"DISPLAY": ":0"}, want: true},
		"Wayland":                    {env: map[string]string{"WAYLAND_DISPLAY": "wayland-0"}, want: true},
		"no display":                 {want: windows || macOS},
		"SSH":                        {env: map[string]string{"SSH_CONNECTION": "a 1 b 22"}},
		"SSH with a display":         {env: map[string]string{"SSH_CONNECTION": "a 1 b 22", "DISPLAY": "localhost:10.0"}},
		"SSH with $BROWSER":          {env: map[string]string{"SSH_CONNECTION": "a 1 b 22", "BROWSER": "none:sh"}, want: true},
		"$BROWSER that is not there": {env: map[string]string{"SSH_CONNECTION": "a 1 b 22", "BROWSER": "none-such"}},
		"--browser-command":          {command: "sh", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Console{Getenv: func(k string) string { return tc.env[k] }}
			if got := (SystemBrowser{Console: c, Command: tc.command}).Here(); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
