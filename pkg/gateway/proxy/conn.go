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
)

// conn is a connection to an endpoint, in the hands of one goroutine at a time: the one
// that serves the request writes its head and reads the answer. http.Transport has two
// more for each connection, and a request pays for waking them.
type conn struct {
	net.Conn

	reader *bufio.Reader
	// head is the space in which heads are written.
	head []byte
	// allowed is how much may yet be read, heard whether anything was of this answer.
	allowed int64
	heard   bool
	// deadline is the one in force for reading; idleSince is when the last answer ended.
	deadline, idleSince time.Time
}

func newConn(c net.Conn) *conn {
	out := &conn{Conn: c}
	out.reader = bufio.NewReader(out)
	return out
}

var errHeadTooLarge = errors.New("the head of the answer is too large")

// Read implements io.Reader for the buffer.
func (c *conn) Read(b []byte) (int, error) {
	if c.allowed <= 0 {
		return 0, errHeadTooLarge
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), c.allowed)])
	c.allowed -= int64(n)
	c.heard = c.heard || n > 0
	return n, err
}

// silence is the error of an endpoint that took a request and did not answer in time. It
// is no net.OpError, so that nobody takes it for a connection that broke.
type silence struct{}

func (silence) Error() string   { return "no answer in time" }
func (silence) Timeout() bool   { return true }
func (silence) Temporary() bool { return true }

// wait sets the deadline for an answer that is asked for now: between timeout and half as
// much again, since setting it costs more than a little patience.
func (c *conn) wait(timeout time.Duration) error {
	now := time.Now()
	if c.deadline.Sub(now) >= timeout {
		return nil
	}
	c.deadline = now.Add(timeout + timeout/2)
	return c.SetReadDeadline(c.deadline)
}

// unbounded lifts the deadline and the limit, for a body that takes as long as it takes.
func (c *conn) unbounded() error {
	c.allowed = math.MaxInt64
	c.deadline = time.Time{}
	return c.SetReadDeadline(time.Time{})
}

// ask writes a request without body and reads the head of the answer; tell is called for
// informational answers.
func (c *conn) ask(in *http.Request, tell func(*http.Response)) (*http.Response, error) {
	c.allowed, c.heard = maxHead, false
	c.head = appendHead(c.head[:0], in)
	if _, err := c.Write(c.head); err != nil {
		return nil, err
	}
	for range maxInformational + 1 {
		resp, err := http.ReadResponse(c.reader, in)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, silence{}
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
// and the connection on which its body follows. done ends the watch over the client; it
// reports false where the client has left and the connection cannot be used again.
func (p *Proxy) exchange(in *http.Request, e *endpoint, tell func(*http.Response)) (*http.Response, *conn, func() bool, error) {
	if c := e.idle.take(time.Now()); c != nil {
		resp, done, err := p.exchangeOn(in, c, tell)
		if err == nil {
			return resp, c, done, nil
		}
		if c.heard || in.Context().Err() != nil || errors.Is(err, silence{}) {
			return nil, nil, nil, err
		}
		// The endpoint had closed a connection that was idle, which it may.
	}
	dialed, err := p.dialer.DialContext(in.Context(), "tcp", e.address)
	if err != nil {
		return nil, nil, nil, err
	}
	c := newConn(dialed)
	resp, done, err := p.exchangeOn(in, c, tell)
	return resp, c, done, err
}

// exchangeOn closes the connection where there is an error.
func (p *Proxy) exchangeOn(in *http.Request, c *conn, tell func(*http.Response)) (*http.Response, func() bool, error) {
	ctx := in.Context()
	err := c.wait(p.options.ResponseTimeout)
	// From here on a deadline is set for good only where ctx is looked at afterwards.
	done := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	var resp *http.Response
	if err == nil {
		resp, err = c.ask(in, tell)
	}
	if err == nil {
		return resp, done, nil
	}
	done()
	_ = c.Close() // it failed
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return nil, nil, err
}
