//go:build linux

package console

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	testclock "k8s.io/utils/clock/testing"
)

// screen is a pseudo-terminal: what is written to tty is read from it.
type screen struct {
	t   *testing.T
	tty *os.File
	ptm *os.File
}

func newScreen(t *testing.T, columns uint16) *screen {
	t.Helper()
	ptm := terminal(t)
	number, err := unix.IoctlGetInt(int(ptm.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(ptm.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(ptm.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { _ = tty.Close() })
	return &screen{t: t, tty: tty, ptm: ptm}
}

// until reads until the text comes, and returns all that was read.
func (s *screen) until(text string) string {
	s.t.Helper()
	got := make(chan string, 1)
	go func() {
		var all strings.Builder
		buffer := make([]byte, 1024)
		for !strings.Contains(all.String(), text) {
			n, err := s.ptm.Read(buffer)
			if err != nil {
				break
			}
			all.Write(buffer[:n])
		}
		got <- all.String()
	}()
	select {
	case all := <-got:
		return all
	case <-time.After(10 * time.Second):
		s.t.Fatalf("no %q on the screen after 10 s", text)
		return ""
	}
}

func TestProgressOnTerminal(t *testing.T) {
	s := newScreen(t, 40)
	clk := testclock.NewFakeClock(time.Now())
	c := &Console{Err: s.tty, Getenv: func(string) string { return "" }}
	p := c.Progress(clk)

	p.Show("waiting for %s", "pods")
	if diff := cmp.Diff("\r\x1b[Kwaiting for pods (0s)", s.until("(0s)")); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	for !clk.HasWaiters() {
		time.Sleep(time.Millisecond) // the clock has no way to wait for them
	}
	clk.Step(2 * time.Second)
	if diff := cmp.Diff("\r\x1b[Kwaiting for pods (2s)", s.until("(2s)")); diff != "" {
		t.Errorf("after a while (-want +got):\n%s", diff)
	}
	p.Note("it stays")
	if diff := cmp.Diff("\r\x1b[Kit stays\r\n\r\x1b[Kwaiting for pods (2s)", s.until("(2s)")); diff != "" {
		t.Errorf("a line that stays (-want +got):\n%s", diff)
	}
	p.Show("%s", strings.Repeat("long ", 20))
	p.Done()
	c.Note("end")
	want := "\r\x1b[K" + strings.Repeat("long ", 20)[:39] + "\r\x1b[Kend\r\n"
	if diff := cmp.Diff(want, s.until("end\r\n")); diff != "" {
		t.Errorf("a line that is too long, and the end (-want +got):\n%s", diff)
	}
}

func TestProgressElsewhere(t *testing.T) {
	tty := newScreen(t, 80).tty
	for name, tc := range map[string]struct {
		tty bool
		env map[string]string
	}{
		"pipe":          {},
		"dumb terminal": {tty: true, env: map[string]string{"TERM": "dumb"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			c := &Console{Err: &out, Getenv: func(k string) string { return tc.env[k] }}
			if tc.tty {
				if (&Console{Err: tty, Getenv: c.Getenv}).live() {
					t.Fatal("lines would be written over on a dumb terminal")
				}
			}
			p := c.Progress(testclock.NewFakeClock(time.Now()))
			p.Show("waiting")
			p.Show("waiting")
			p.Note("it stays")
			p.Show("still waiting")
			p.Done()
			if diff := cmp.Diff("waiting\nit stays\nstill waiting\n", out.String()); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}
