package physical

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// netns is a named network namespace as "ip netns" makes them.
type netns string

func (n netns) path() string { return filepath.Join("/run/netns", string(n)) }

func (n netns) exists() bool {
	_, err := os.Stat(n.path())
	return err == nil
}

// ensure makes the namespace, if need be, with the loopback device up and the
// given addresses on it.
func (n netns) ensure(ctx context.Context, addresses []string) error {
	if !n.exists() {
		if err := run(ctx, "ip", "netns", "add", string(n)); err != nil {
			return err
		}
	}
	if err := run(ctx, "ip", "-n", string(n), "link", "set", "lo", "up"); err != nil {
		return err
	}
	for _, a := range addresses {
		if err := run(ctx, "ip", "-n", string(n), "addr", "replace", a+"/32", "dev", "lo"); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes the name. The namespace goes when nothing is left in it.
func (n netns) remove(ctx context.Context) error {
	if !n.exists() {
		return nil
	}
	return run(ctx, "ip", "netns", "del", string(n))
}

// id identifies the namespace as the links in /proc/PID/ns do, and is empty if
// it does not exist.
func (n netns) id() (string, error) {
	st := unix.Stat_t{}
	if err := unix.Stat(n.path(), &st); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		return "", fmt.Errorf("cannot look at network namespace %q: %w", n, err)
	}
	return fmt.Sprintf("net:[%d]", st.Ino), nil
}

// dial connects from within the namespace. A socket belongs to the namespace of
// the thread that makes it, for good, so it is enough that the thread is in
// there while it dials. The address has to be an IP address: a resolver would
// work on other threads.
func (n netns) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("cannot dial %q: %w", address, err)
	}
	if net.ParseIP(host) == nil {
		return nil, fmt.Errorf("cannot dial %q in network namespace %q: not an IP address", address, n)
	}
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		// Not unlocked on purpose: the thread ends with the goroutine and never
		// serves another one from the wrong namespace.
		runtime.LockOSThread()
		if err := n.enter(); err != nil {
			done <- result{err: err}
			return
		}
		d := net.Dialer{Timeout: 10 * time.Second}
		conn, err := d.DialContext(ctx, network, address)
		done <- result{conn: conn, err: err}
	}()
	r := <-done
	return r.conn, r.err
}

// enter moves the calling thread into the namespace.
func (n netns) enter() error {
	f, err := os.Open(n.path())
	if err != nil {
		return fmt.Errorf("cannot enter network namespace %q: %w", n, err)
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("cannot enter network namespace %q: %w", n, err)
	}
	return nil
}

// run executes a short command; its output is part of the error.
func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(append([]string{name}, args...), " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
