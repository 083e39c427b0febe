package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// maxHead bounds the head of an answer.
	maxHead = 1 << 20
	// maxInformational bounds the 1xx answers before the real one.
	maxInformational = 5
	// maxIdle bounds the connections that are kept for one endpoint.
	maxIdle = 256
	// glance is how long a request waits for its answer before the gateway has itself
	// woken when the client leaves.
	glance = 20 * time.Millisecond
)

// conn is a connection to an endpoint, in the hands of one goroutine at a time: the one
// that serves the request writes its head and reads the answer. http.Transport has two
// more for each connection, and a request pays for waking them.
type conn struct {
	net.Conn

	reader *bufio.Reader
	// head is the space in which heads are written.
	head []byte
	// client is the context of the request that is answered; unwatch is set while its end
	// interrupts a Read.
	client  context.Context
	unwatch func() bool
	// allowed is how much may yet be read, heard whether anything was of this answer.
	allowed int64
	heard   bool
	// patience ends the wait for the head; zero for none. deadline is the one in force for
	// reading. idleSince is when the last answer ended.
	patience, deadline, idleSince time.Time
}

func newConn(c net.Conn) *conn {
	out := &conn{Conn: c}
	out.reader = bufio.NewReader(out)
	return out
}

var errHeadTooLarge = errors.New("the head of the answer is too large")

// Read implements io.Reader for the buffer. Most answers come within a glance, and have
// no use for the watch over the client, which costs as much as a system call.
func (c *conn) Read(b []byte) (int, error) {
	if c.allowed <= 0 {
		return 0, errHeadTooLarge
	}
	for {
		n, err := c.Conn.Read(b[:min(int64(len(b)), c.allowed)])
		c.allowed -= int64(n)
		c.heard = c.heard || n > 0
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if err := c.client.Err(); err != nil {
			return 0, err
		}
		if !c.patience.IsZero() && !time.Now().Before(c.patience) {
			return 0, silence{}
		}
		if err := c.watch(); err != nil {
			return 0, err
		}
	}
}

// watch has Read interrupted when the client leaves, and when patience ends.
func (c *conn) watch() error {
	if c.unwatch == nil {
		c.unwatch = context.AfterFunc(c.client, func() {
			// An error says that the connection is closed, and then nobody waits for it.
			_ = c.SetReadDeadline(time.Unix(1, 0))
		})
	}
	c.deadline = c.patience
	if err := c.SetReadDeadline(c.deadline); err != nil {
		return err
	}
	// That may have been after the client left.
	return c.client.Err()
}

// settle ends the watch; false means that the client left, and that the connection
// cannot be used again.
func (c *conn) settle() bool {
	stay := c.unwatch == nil || c.unwatch()
	c.client, c.unwatch = nil, nil
	return stay
}

// silence is the error of an endpoint that took a request and did not answer in time. It
// is no net.OpError, so that nobody takes it for a connection that broke.
type silence struct{}

func (silence) Error() string   { return "no answer in time" }
func (silence) Timeout() bool   { return true }
func (silence) Temporary() bool { return true }

// drop closes a connection that is of no further use.
func (c *conn) drop() {
	c.settle()
	_ = c.Close() // what an error says of it is of no interest either
}

// begin prepares for an answer that is awaited from now on. A deadline of the last one
// that is still ahead will do, since to set one for each request costs more.
func (c *conn) begin(client context.Context, timeout time.Duration) error {
	now := time.Now()
	c.client, c.allowed, c.heard, c.patience = client, maxHead, false, now.Add(timeout)
	if left := c.deadline.Sub(now); left >= glance/2 && left <= glance {
		return nil
	}
	c.deadline = now.Add(glance)
	return c.SetReadDeadline(c.deadline)
}

// unbounded is for a body, which may be long and take long.
func (c *conn) unbounded() error {
	c.allowed, c.patience = math.MaxInt64, time.Time{}
	if c.unwatch == nil {
		return nil
	}
	return c.watch()
}

// ask writes a request without body and reads the head of the answer, for which it waits
// so long; tell is called for informational answers.
func (c *conn) ask(in *http.Request, timeout time.Duration, tell func(*http.Response)) (*http.Response, error) {
	if err := c.begin(in.Context(), timeout); err != nil {
		return nil, err
	}
	c.head = appendHead(c.head[:0], in)
	if _, err := c.Write(c.head); err != nil {
		return nil, err
	}
	for range maxInformational + 1 {
		resp, err := http.ReadResponse(c.reader, in)
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("the application switched protocols unasked")
		case resp.StatusCode >= http.StatusOK:
			return resp, nil
		}
		tell(resp)
	}
	return nil, fmt.Errorf("more than %d informational answers", maxInformational)
}

// idleConns are the connections to an endpoint that wait for a request.
type idleConns struct {
	mu     sync.Mutex
	list   []*conn
	closed bool
}

// take returns the connection used last, or nil.
func (i *idleConns) take(now time.Time) *conn {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := len(i.list)
	if n == 0 || now.Sub(i.list[n-1].idleSince) >= idleTimeout {
		// All others are older still; the next pruning closes them.
		return nil
	}
	c := i.list[n-1]
	i.list[n-1] = nil
	i.list = i.list[:n-1]
	return c
}

func (i *idleConns) put(c *conn) {
	c.idleSince = time.Now()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed || len(i.list) >= maxIdle {
		_ = c.Close() // it is not needed any more
		return
	}
	i.list = append(i.list, c)
}

// prune closes those that have been idle since before an instant.
func (i *idleConns) prune(before time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	old := 0
	for old < len(i.list) && i.list[old].idleSince.Before(before) {
		_ = i.list[old].Close()
		old++
	}
	i.list = slices.Delete(i.list, 0, old)
}

// close closes all, and those that come back later.
func (i *idleConns) close() {
	i.prune(time.Now().Add(time.Hour))
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
}

// exchange sends a request without body to an endpoint and returns the head of the answer
// and the connection on which its body follows.
func (p *Proxy) exchange(in *http.Request, e *endpoint, tell func(*http.Response)) (*http.Response, *conn, error) {
	if c := e.idle.take(time.Now()); c != nil {
		resp, err := c.ask(in, p.options.ResponseTimeout, tell)
		if err == nil {
			return resp, c, nil
		}
		c.drop()
		if c.heard || in.Context().Err() != nil || errors.Is(err, silence{}) {
			return nil, nil, err
		}
		// The endpoint had closed a connection that was idle, which it may.
	}
	dialed, err := p.dialer.DialContext(in.Context(), "tcp", e.address)
	if err != nil {
		return nil, nil, err
	}
	c := newConn(dialed)
	resp, err := c.ask(in, p.options.ResponseTimeout, tell)
	if err != nil {
		c.drop()
		return nil, nil, err
	}
	return resp, c, nil
}
