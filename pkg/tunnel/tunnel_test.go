package tunnel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// tenant is the logical cluster that requests are for.
const tenant logicalcluster.Name = "tenant"

// server serves tunnels at /<target>, over TLS and HTTP/2 where the client wants it.
type server struct {
	*httptest.Server
	tunnels Tunnels
	revoked atomic.Bool
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.tunnels.Upgrade(t.Context(), w, r, strings.Trim(r.URL.Path, "/"), func() bool { return !s.revoked.Load() }); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *server) config() *rest.Config {
	return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// open opens a tunnel and serves it with handler.
func (s *server) open(t *testing.T, target string, handler http.Handler) net.Listener {
	t.Helper()
	rt, err := Transport(s.config())
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(t.Context(), rt, s.URL+"/"+target)
	if err != nil {
		t.Fatal(err)
	}
	served := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = served.Serve(l) }()
	t.Cleanup(func() { _ = served.Close() })
	eventually(t, "the tunnel is there", func() bool { return s.tunnels.Check(target, tenant) == nil })
	return l
}

func (s *server) get(t *testing.T, target, path string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+target+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.tunnels.Transport(tenant).RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func says(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, text, " ", r.URL.Path) })
}

// eventually waits for what happens on the other side of a connection.
func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	for began := time.Now(); !check(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

func TestEachTargetHasItsOwn(t *testing.T) {
	s := newServer(t)
	s.open(t, "east", says("east"))
	s.open(t, "west", says("west"))
	for target, want := range map[string]string{"east": "east /a", "west": "west /a"} {
		if got, err := s.get(t, target, "/a"); err != nil || got != want {
			t.Errorf("%s answers %q, %v; want %q", target, got, err, want)
		}
	}
	if _, err := s.get(t, "north", "/a"); !errors.Is(err, ErrNotConnected) {
		t.Errorf("a target without a tunnel: %v, want %v", err, ErrNotConnected)
	}
}

func TestTheNewestTunnelHolds(t *testing.T) {
	s := newServer(t)
	first := s.open(t, "east", says("first"))
	s.open(t, "east", says("second"))
	eventually(t, "the second answers", func() bool {
		got, err := s.get(t, "east", "/")
		return err == nil && got == "second /"
	})
	if _, err := first.Accept(); err == nil {
		t.Error("the first tunnel still accepts")
	}
}

func TestEnds(t *testing.T) {
	cases := map[string]func(s *server, l net.Listener){
		"ByTheSyncer": func(_ *server, l net.Listener) { _ = l.Close() },
		"ByTheServer": func(s *server, _ net.Listener) { s.tunnels.Close("east") },
		"ByRights":    func(s *server, _ net.Listener) { s.revoked.Store(true) },
	}
	for name, end := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			l := s.open(t, "east", says("east"))
			if err := s.tunnels.Check("east", tenant); err != nil {
				t.Fatal(err)
			}
			end(s, l)
			eventually(t, "the target is not connected", func() bool { return errors.Is(s.tunnels.Check("east", tenant), ErrNotConnected) })
			eventually(t, "nothing is kept", func() bool {
				s.tunnels.mu.Lock()
				defer s.tunnels.mu.Unlock()
				return len(s.tunnels.byTarget) == 0
			})
		})
	}
}

func TestEndsWithTheServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tunnels := &Tunnels{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = tunnels.Upgrade(ctx, w, r, "east", func() bool { return true })
	}))
	defer s.Close()
	l, err := Open(t.Context(), http.DefaultTransport, s.URL)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := l.Accept(); err == nil {
		t.Error("the tunnel outlives the server's context")
	}
}

// TestUpgrade sends bytes both ways over a request that changes its protocol, as exec
// does, through two reverse proxies as in the product.
func TestUpgrade(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "echo" {
			http.Error(w, "no upgrade", http.StatusBadRequest)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := rw.ReadString('\n')
		fmt.Fprint(conn, "echo: ", line)
	}))
	defer backend.Close()
	s := newServer(t)
	s.open(t, "east", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", strings.TrimPrefix(backend.URL, "http://")
	}})
	front := httptest.NewServer(&httputil.ReverseProxy{Transport: s.tunnels.Transport(tenant), Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", "east"
	}})
	defer front.Close()

	conn, err := net.Dial("tcp", strings.TrimPrefix(front.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nContent-Length: 0\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %s, want 101", resp.Status)
	}
	fmt.Fprint(conn, "hello\n")
	if got, err := r.ReadString('\n'); err != nil || got != "echo: hello\n" {
		t.Errorf("answer %q, %v; want the echo", got, err)
	}
}

func TestRefused(t *testing.T) {
	s := newServer(t)
	cases := map[string]struct {
		request func() (net.Listener, error)
		want    string
	}{
		"NotTheProtocol": {
			request: func() (net.Listener, error) {
				resp, err := s.Client().Get(s.URL + "/east")
				if err != nil {
					return nil, err
				}
				defer resp.Body.Close()
				return nil, errors.New(reason(resp.Body))
			},
			want: "a tunnel begins with Connection: Upgrade",
		},
		"NoServerOfTunnels": {
			request: func() (net.Listener, error) {
				other := httptest.NewServer(http.NotFoundHandler())
				defer other.Close()
				return Open(t.Context(), http.DefaultTransport, other.URL)
			},
			want: "the server refuses a tunnel: 404 Not Found: 404 page not found",
		},
		"AStatus": {
			request: func() (net.Listener, error) {
				other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusGone)
					fmt.Fprint(w, `{"kind":"Status","message":"it is gone"}`)
				}))
				defer other.Close()
				return Open(t.Context(), http.DefaultTransport, other.URL)
			},
			want: "the server refuses a tunnel: 410 Gone: it is gone",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := tc.request(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

// TestLesson19SlowReaderHoldsUpNoOther has one stream full of data that nobody reads.
func TestLesson19SlowReaderHoldsUpNoOther(t *testing.T) {
	s := newServer(t)
	s.open(t, "east", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/log" {
			for i := 0; i < 1024; i++ {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
			return
		}
		fmt.Fprint(w, "quick")
	}))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://east/log", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.tunnels.Transport(tenant).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := s.get(t, "east", "/"); err != nil || got != "quick" {
		t.Errorf("beside a log that nobody reads: %q, %v", got, err)
	}
}

// TestShare has one tenant use up its share, which leaves the tunnel to others, and have
// it back as streams end.
func TestShare(t *testing.T) {
	s := newServer(t)
	s.open(t, "east", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	follow := func(cluster logicalcluster.Name) (io.Closer, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://east/log", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := s.tunnels.Transport(cluster).RoundTrip(req)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp.Body, nil
	}
	var first io.Closer
	for n := range MaxStreamsPerCluster {
		body, err := follow(tenant)
		if err != nil {
			t.Fatalf("stream %d of %d: %v", n+1, MaxStreamsPerCluster, err)
		}
		first = body
	}
	if _, err := follow(tenant); !errors.Is(err, ErrShareUsed) {
		t.Errorf("one more: %v, want %v", err, ErrShareUsed)
	}
	if err := s.tunnels.Check("east", tenant); !errors.Is(err, ErrShareUsed) {
		t.Errorf("Check of the one who has used up its share: %v, want %v", err, ErrShareUsed)
	}
	if err := s.tunnels.Check("east", "other"); err != nil {
		t.Errorf("Check of another: %v", err)
	}
	if _, err := follow("other"); err != nil {
		t.Errorf("a stream of another: %v", err)
	}
	_ = first.Close()
	eventually(t, "the share is free again", func() bool { return s.tunnels.Check("east", tenant) == nil })
	if _, err := follow(tenant); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
	s.tunnels.Close("east")
	eventually(t, "the tunnel is gone", func() bool { return errors.Is(s.tunnels.Check("east", tenant), ErrNotConnected) })
}
