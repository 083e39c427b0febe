package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// errFailures says that requests failed; the summary has the rest.
var errFailures = errors.New("requests failed")

// maxBody is how much of an answer is looked at.
const maxBody = 64 << 10

// asker does one request.
type asker func(ctx context.Context) outcome

// run asks until ctx is done or the stop file appears, waits for the requests
// under way, and writes the summary.
func run(ctx context.Context, o options) error {
	if o.url == "" {
		return errors.New("-url is required")
	}
	ask := httpAsker(o)
	if o.socket {
		var end func()
		ask, end = socketAsker(o)
		defer end()
	}
	r := newRecorder(o.url, time.Now())
	requests := sync.WaitGroup{}
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	report := time.NewTicker(time.Second)
	defer report.Stop()
	for ctx.Err() == nil && !exists(o.stopFile) {
		// Requests under way at the end are finished and count.
		requests.Go(func() { r.add(ask(context.WithoutCancel(ctx))) })
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		select {
		case <-report.C:
			if o.out == "-" {
				continue
			}
			if err := r.write(o.out); err != nil {
				return err
			}
		default:
		}
	}
	requests.Wait()
	if err := r.write(o.out); err != nil {
		return err
	}
	if r.failures() > 0 {
		return errFailures
	}
	return nil
}

// httpAsker opens a connection for every request unless told to keep them, so
// that the path through a load balancer is chosen anew.
func httpAsker(o options) asker {
	client := &http.Client{
		Transport: &http.Transport{
			DialContext:       dialer(o),
			DisableKeepAlives: !o.reuse,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: o.insecure},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context) (out outcome) {
		out.started = time.Now()
		defer func() { out.took = time.Since(out.started) }()
		ctx, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.url, nil)
		if err != nil {
			out.err = err
			return out
		}
		req.Host = o.host
		resp, err := client.Do(req)
		if err != nil {
			out.err = err
			return out
		}
		defer resp.Body.Close()
		out.code = resp.StatusCode
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
		out.body, out.err = string(body), err
		switch {
		case err != nil:
		case out.code != http.StatusOK:
			out.err = fmt.Errorf("status %s: %s", resp.Status, firstLine(out.body))
		case !strings.Contains(out.body, o.expect):
			out.err = fmt.Errorf("answer does not contain %q: %s", o.expect, firstLine(out.body))
		}
		return out
	}
}

// socketAsker sends a message over one WebSocket and expects it back. After a
// failure the next request connects again.
func socketAsker(o options) (ask asker, end func()) {
	d := websocket.Dialer{NetDialContext: dialer(o), TLSClientConfig: &tls.Config{InsecureSkipVerify: o.insecure}, HandshakeTimeout: o.timeout}
	header := http.Header{}
	if o.host != "" {
		header.Set("Host", o.host)
	}
	var mu sync.Mutex // One message at a time: answers carry no name.
	var conn *websocket.Conn
	var pod string
	n := 0
	end = func() {
		if conn != nil {
			_ = conn.Close()
		}
	}
	ask = func(ctx context.Context) (out outcome) {
		mu.Lock()
		defer mu.Unlock()
		out.started = time.Now()
		defer func() { out.took = time.Since(out.started) }()
		if conn == nil {
			c, resp, err := d.DialContext(ctx, o.url, header)
			if resp != nil {
				out.code = resp.StatusCode
				pod = resp.Header.Get("X-Demo-Pod")
			}
			if err != nil {
				out.err = err
				return out
			}
			conn = c
		}
		n++
		if out.err = echo(conn, fmt.Sprintf("message %d", n), time.Now().Add(o.timeout)); out.err != nil {
			_ = conn.Close()
			conn = nil
			return out
		}
		out.code = http.StatusOK
		if pod != "" {
			out.body = "pod=" + pod
		}
		return out
	}
	return ask, end
}

func echo(conn *websocket.Conn, message string, deadline time.Time) error {
	if err := errors.Join(conn.SetWriteDeadline(deadline), conn.SetReadDeadline(deadline)); err != nil {
		return err
	}
	if err := conn.WriteMessage(websocket.TextMessage, []byte(message)); err != nil {
		return err
	}
	_, got, err := conn.ReadMessage()
	if err != nil {
		return err
	}
	if string(got) != message {
		return fmt.Errorf("sent %q, got back %q", message, got)
	}
	return nil
}

func dialer(o options) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if o.resolve != "" {
			address = o.resolve
		}
		d := net.Dialer{}
		return d.DialContext(ctx, network, address)
	}
}

func exists(path string) bool {
	if path == "" {
		return false
	}
	_, err := os.Stat(path)
	return err == nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
