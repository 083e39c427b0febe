package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

var (
	// ErrNotConnected says that a target has no tunnel to this server.
	ErrNotConnected = errors.New("no tunnel to this target")
	// ErrBusy says that a target has as many streams as it may have.
	ErrBusy = errors.New("too many streams to this target")
	// ErrShareUsed says that a logical cluster has as many streams to a target as it may
	// have.
	ErrShareUsed = fmt.Errorf("this workspace has %d streams to this target, which is its share", MaxStreamsPerCluster)
)

// Tunnels are the tunnels that syncers hold open to this server. The zero value has
// none and can be used.
type Tunnels struct {
	mu       sync.Mutex
	byTarget map[string]*tunnel
}

type tunnel struct {
	session *yamux.Session
	allowed func() bool

	// mu guards byCluster, the number of streams of each logical cluster that has any.
	mu        sync.Mutex
	byCluster map[logicalcluster.Name]int
}

// open opens a stream for a logical cluster.
func (tn *tunnel) open(cluster logicalcluster.Name) (net.Conn, error) {
	tn.mu.Lock()
	if tn.byCluster[cluster] >= MaxStreamsPerCluster {
		tn.mu.Unlock()
		return nil, ErrShareUsed
	}
	tn.byCluster[cluster]++
	tn.mu.Unlock()
	conn, err := tn.session.Open()
	if err != nil {
		tn.release(cluster)
		return nil, err
	}
	return &stream{Conn: conn, release: sync.OnceFunc(func() { tn.release(cluster) })}, nil
}

func (tn *tunnel) release(cluster logicalcluster.Name) {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	if tn.byCluster[cluster]--; tn.byCluster[cluster] == 0 {
		delete(tn.byCluster, cluster)
	}
}

// full reports whether a logical cluster has used up its share.
func (tn *tunnel) full(cluster logicalcluster.Name) bool {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	return tn.byCluster[cluster] >= MaxStreamsPerCluster
}

// stream is a connection that counts until it is closed.
type stream struct {
	net.Conn

	release func()
}

func (s *stream) Close() error {
	defer s.release()
	return s.Conn.Close()
}

// Upgrade makes the request of a syncer, which has been authorized, the tunnel of target
// until ctx ends, and returns. allowed is asked before each use: a syncer whose rights
// were taken away loses its tunnel. An error has not been answered yet.
func (t *Tunnels) Upgrade(ctx context.Context, w http.ResponseWriter, r *http.Request, target string, allowed func() bool) error {
	if !strings.EqualFold(r.Header.Get("Connection"), "Upgrade") || !strings.EqualFold(r.Header.Get("Upgrade"), Protocol) {
		return fmt.Errorf("a tunnel begins with Connection: Upgrade and Upgrade: %s", Protocol)
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("a tunnel needs HTTP/1.1: %w", err)
	}
	if err := accept(conn, buffered.Reader.Buffered()); err != nil {
		_ = conn.Close()
		return nil //nolint:nilerr // nobody is left to tell
	}
	session, err := yamux.Client(conn, config())
	if err != nil {
		_ = conn.Close()
		return nil //nolint:nilerr // nobody is left to tell
	}
	t.hold(ctx, target, &tunnel{session: session, allowed: allowed, byCluster: map[logicalcluster.Name]int{}})
	return nil
}

// accept answers on a hijacked connection; early is how much the client has sent before.
func accept(conn net.Conn, early int) error {
	if early > 0 {
		return errors.New("the client speaks before the protocol has changed")
	}
	// The HTTP server's deadlines are not ours.
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", Protocol)
	return err
}

// hold keeps a tunnel until it ends. It replaces an earlier one, which may be dead
// without our knowing.
func (t *Tunnels) hold(ctx context.Context, target string, tn *tunnel) {
	t.mu.Lock()
	earlier := t.byTarget[target]
	if t.byTarget == nil {
		t.byTarget = map[string]*tunnel{}
	}
	t.byTarget[target] = tn
	t.mu.Unlock()
	if earlier != nil {
		_ = earlier.session.Close()
	}
	stop := context.AfterFunc(ctx, func() { _ = tn.session.Close() })
	go func() {
		<-tn.session.CloseChan()
		stop()
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.byTarget[target] == tn {
			delete(t.byTarget, target)
		}
	}()
}

// Close ends the tunnel of a target, if there is one.
func (t *Tunnels) Close(target string) {
	t.mu.Lock()
	tn := t.byTarget[target]
	t.mu.Unlock()
	if tn != nil {
		_ = tn.session.Close()
	}
}

// use returns the tunnel of a target if it can be used now.
func (t *Tunnels) use(target string) (*tunnel, error) {
	t.mu.Lock()
	tn := t.byTarget[target]
	t.mu.Unlock()
	if tn == nil || tn.session.IsClosed() {
		return nil, ErrNotConnected
	}
	if !tn.allowed() {
		_ = tn.session.Close()
		return nil, ErrNotConnected
	}
	if tn.session.NumStreams() >= maxStreams {
		return nil, ErrBusy
	}
	return tn, nil
}

// Check says whether a request for a logical cluster would be carried now: it returns nil,
// ErrNotConnected, ErrBusy or ErrShareUsed.
func (t *Tunnels) Check(target string, cluster logicalcluster.Name) error {
	tn, err := t.use(target)
	if err == nil && tn.full(cluster) {
		return ErrShareUsed
	}
	return err
}

// Transport returns the transport of requests to http://<target>/… for a logical cluster.
// Each is a stream of its own.
func (t *Tunnels) Transport(cluster logicalcluster.Name) *http.Transport {
	return &http.Transport{
		DisableKeepAlives:  true,
		DisableCompression: true,
		DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
			target, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			tn, err := t.use(target)
			if err != nil {
				return nil, err
			}
			conn, err := tn.open(cluster)
			if err != nil {
				return nil, fmt.Errorf("cannot open a stream to target %q: %w", target, err)
			}
			return conn, nil
		},
	}
}
