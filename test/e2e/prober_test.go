package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/13eedeaf/kcp/test/physical"
)

const (
	// probeInterval is how often a host is asked, whatever the answers take.
	probeInterval = 100 * time.Millisecond
	probeTimeout  = 5 * time.Second
)

// prober is a client that knows the addresses of all gateways. It takes them in turn,
// each time over a new connection, and asks the next one when a gateway's port is closed
// or its connection breaks, as a gateway that is killed breaks it. Any other outcome than
// 200 with the application's greeting is a failure.
type prober struct {
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	gateways []string
	requests sync.WaitGroup

	mu       sync.Mutex
	hosts    map[string]context.CancelFunc
	asked    map[string]int
	failures []failure
}

// failure is one request that went wrong.
type failure struct {
	at            time.Time
	host, gateway string
	err           error
}

func (f failure) String() string {
	return fmt.Sprintf("%s %s via %s: %v", f.at.Format("15:04:05.000"), f.host, f.gateway, f.err)
}

func newProber(f *physical.Fixture, gateways ...string) *prober {
	return &prober{dial: f.DialContext, gateways: gateways, hosts: map[string]context.CancelFunc{}, asked: map[string]int{}}
}

// add begins to ask for a host; remove ends it.
func (p *prober) add(ctx context.Context, host string) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.mu.Lock()
	p.hosts[host] = cancel
	p.mu.Unlock()
	p.requests.Go(func() {
		ticker := time.NewTicker(probeInterval)
		defer ticker.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			p.requests.Go(func() { p.ask(context.WithoutCancel(ctx), host, n) })
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
}

func (p *prober) remove(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cancel, ok := p.hosts[host]; ok {
		cancel()
		delete(p.hosts, host)
	}
}

// stop ends all and waits for what is under way.
func (p *prober) stop() {
	p.mu.Lock()
	for host, cancel := range p.hosts {
		cancel()
		delete(p.hosts, host)
	}
	p.mu.Unlock()
	p.requests.Wait()
}

// ask does one request, first at gateway n.
func (p *prober) ask(ctx context.Context, host string, n int) {
	began := time.Now()
	p.mu.Lock()
	gateways := p.gateways
	p.mu.Unlock()
	var gateway string
	var err error
	for i := range gateways {
		gateway = gateways[(n+i)%len(gateways)]
		if _, err = p.get(ctx, gateway, host, "/hello"); err == nil || !closed(err) {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[host]++
	if err != nil {
		p.failures = append(p.failures, failure{began, host, gateway, err})
	}
}

// closed reports whether an error is that of a port or a connection without a process.
func closed(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// get asks one gateway and returns the answer.
func (p *prober) get(ctx context.Context, gateway, host, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return p.dial(ctx, network, net.JoinHostPort(gateway, "80"))
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	switch text := strings.TrimSpace(string(body)); {
	case err != nil:
		return "", err
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("status %s: %s", resp.Status, text)
	case !strings.Contains(text, "greeting="+greeting):
		return "", fmt.Errorf("answer %q is not the application's", text)
	default:
		return text, nil
	}
}

// socket opens a WebSocket to a host through one gateway.
func (p *prober) socket(t *testing.T, gateway, host string) *socket {
	t.Helper()
	d := websocket.Dialer{
		HandshakeTimeout: probeTimeout,
		NetDialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return p.dial(ctx, network, net.JoinHostPort(gateway, "80"))
		},
	}
	conn, resp, err := d.DialContext(t.Context(), "ws://"+host+"/ws", nil)
	if err != nil {
		t.Fatalf("cannot open a WebSocket to %s: %v", host, err)
	}
	defer func() { _ = resp.Body.Close() }()
	t.Cleanup(func() { _ = conn.Close() })
	return &socket{conn: conn}
}

// socket is an open WebSocket.
type socket struct{ conn *websocket.Conn }

// echo sends a message and expects it back.
func (s *socket) echo() error {
	deadline := time.Now().Add(probeTimeout)
	if err := errors.Join(s.conn.SetWriteDeadline(deadline), s.conn.SetReadDeadline(deadline)); err != nil {
		return err
	}
	if err := s.conn.WriteMessage(websocket.TextMessage, []byte("hello")); err != nil {
		return err
	}
	_, got, err := s.conn.ReadMessage()
	if err == nil && string(got) != "hello" {
		return fmt.Errorf("sent %q, got back %q", "hello", got)
	}
	return err
}

func (s *socket) close() { _ = s.conn.Close() }

// use changes the gateways' addresses.
func (p *prober) use(gateways ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gateways = gateways
}

// take returns the failures since the last call.
func (p *prober) take() []failure {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.failures
	p.failures = nil
	return out
}

// counts returns how often each host has been asked.
func (p *prober) counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]int{}
	for host := range p.hosts {
		out[host] = p.asked[host]
	}
	return out
}
