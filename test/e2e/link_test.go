package e2e

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/13eedeaf/kcp/test/physical"
)

// link is the wire between the server and one of its agents. While it is cut nothing
// arrives on either side and nobody is told, as when a cable is pulled: open connections
// stay open, and new ones are never answered.
type link struct {
	address string

	mu   sync.Mutex
	cond *sync.Cond
	cut  bool
}

// newLink forwards from port of 127.0.0.1 to target, both in the network namespace of
// the fixture.
func newLink(t *testing.T, f *physical.Fixture, port int, target string) *link {
	t.Helper()
	l := &link{address: fmt.Sprintf("127.0.0.1:%d", port)}
	l.cond = sync.NewCond(&l.mu)
	listener, err := listenIn("/run/netns/"+f.Netns(), l.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	ctx := context.WithoutCancel(t.Context())
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.forward(ctx, f, conn, target)
		}
	}()
	return l
}

func (l *link) forward(ctx context.Context, f *physical.Fixture, from net.Conn, target string) {
	defer func() { _ = from.Close() }()
	l.whole()
	to, err := f.DialContext(ctx, "tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	done := make(chan struct{}, 2)
	go func() { l.copy(to, from); done <- struct{}{} }()
	go func() { l.copy(from, to); done <- struct{}{} }()
	<-done
}

func (l *link) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.whole()
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// whole waits until the link is not cut.
func (l *link) whole() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.cut {
		l.cond.Wait()
	}
}

// set cuts the link or mends it.
func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	l.cond.Broadcast()
}

// listenIn listens in a network namespace. A socket belongs to the namespace of the
// thread that makes it, for good.
func listenIn(netns, address string) (net.Listener, error) {
	type result struct {
		listener net.Listener
		err      error
	}
	done := make(chan result, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		fd, err := unix.Open(netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			done <- result{err: fmt.Errorf("cannot open network namespace %q: %w", netns, err)}
			return
		}
		defer func() { _ = unix.Close(fd) }()
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			done <- result{err: fmt.Errorf("cannot enter network namespace %q: %w", netns, err)}
			return
		}
		l, err := net.Listen("tcp", address)
		done <- result{l, err}
	}()
	r := <-done
	return r.listener, r.err
}
