package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/13eedeaf/kcp/pkg/gateway/proxy"
)

// raw is a server that answers as it likes.
type raw struct {
	net.Listener

	address  string
	requests atomic.Int64
}

// rawServer calls answer with the number of the request on its connection, from 0, and
// sends what it returns; the connection is closed unless it says to keep it.
func rawServer(t *testing.T, answer func(n int) (response string, keep bool)) *raw {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	s := &raw{Listener: l, address: l.Addr().String()}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(conn, answer)
		}
	}()
	return s
}

func (s *raw) serve(conn net.Conn, answer func(int) (string, bool)) {
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	for n := 0; ; n++ {
		r, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		s.requests.Add(1)
		response, keep := answer(n)
		_, _ = io.WriteString(conn, response)
		if !keep {
			return
		}
	}
}

func ok(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// TestKeepAliveRace: the application closes its side of an idle connection just as the
// next request arrives there, as any server with an idle timeout does now and then.
func TestKeepAliveRace(t *testing.T) {
	race := func(n int) (string, bool) {
		if n == 0 {
			return ok("fine"), true
		}
		return "", false
	}
	for name, count := range map[string]int{"one endpoint": 1, "two endpoints": 2} {
		t.Run(name, func(t *testing.T) {
			var at []string
			for range count {
				at = append(at, rawServer(t, race).address)
			}
			g := newGateway(t)
			g.serve(active("ta", at...))
			g.awaitProbes()
			for i := range 200 {
				if code, body := g.request(http.MethodGet, "/", ""); code != http.StatusOK {
					t.Fatalf("request %d: %d %q", i, code, body)
				}
			}
			p := g.ping(4)
			p.more(t, 500)
			p.end(t)
		})
	}
}

func TestRetries(t *testing.T) {
	fine := func(int) (string, bool) { return ok("fine"), true }
	cut := func(int) (string, bool) { return "", false }
	tests := map[string]struct {
		method, body string
		chunked      bool
		// refused: the first endpoint is gone since its last probe; otherwise it takes
		// requests and cuts the connection.
		refused  bool
		wantCode int
		// wantFirst and wantSecond count how often the request arrived.
		wantFirst, wantSecond int64
	}{
		"GET, refused":                         {method: "GET", refused: true, wantCode: 200, wantSecond: 1},
		"POST, refused":                        {method: "POST", body: "x", refused: true, wantCode: 200, wantSecond: 1},
		"POST of a stream, refused":            {method: "POST", body: "x", chunked: true, refused: true, wantCode: 200, wantSecond: 1},
		"POST of a long body, refused":         {method: "POST", body: strings.Repeat("x", 100<<10), refused: true, wantCode: 200, wantSecond: 1},
		"GET, cut":                             {method: "GET", wantCode: 200, wantFirst: 2, wantSecond: 1},
		"DELETE, cut":                          {method: "DELETE", wantCode: 200, wantFirst: 2, wantSecond: 1},
		"PUT of a short body, cut":             {method: "PUT", body: "x", wantCode: 200, wantFirst: 2, wantSecond: 1},
		"PUT of a stream cannot be sent again": {method: "PUT", body: "x", chunked: true, wantCode: 502, wantFirst: 1},
		"POST may have had an effect":          {method: "POST", body: "x", wantCode: 502, wantFirst: 1},
		"POST without body may have too":       {method: "POST", wantCode: 502, wantFirst: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			first, second := rawServer(t, cut), rawServer(t, fine)
			g := newGateway(t, func(o *proxy.Options) { o.ProbeInterval = time.Hour })
			// The draining one is the second choice.
			g.serve(active("ta", first.address), draining("tb", second.address))
			g.awaitProbes()
			if tc.refused {
				if err := first.Close(); err != nil {
					t.Fatal(err)
				}
			}
			var body io.Reader
			if tc.body != "" {
				body = strings.NewReader(tc.body)
			}
			if tc.chunked {
				body = io.MultiReader(body)
			}
			r, err := http.NewRequestWithContext(t.Context(), tc.method, g.url, body)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != tc.wantCode {
				t.Errorf("status: got %d, want %d", resp.StatusCode, tc.wantCode)
			}
			if health := g.EndpointHealth()[first.address]; tc.refused && health != "unhealthy" {
				t.Errorf("the endpoint that refused is still %s", health)
			}
			if got := first.requests.Load(); got != tc.wantFirst {
				t.Errorf("the first endpoint got the request %d times, want %d", got, tc.wantFirst)
			}
			if got := second.requests.Load(); got != tc.wantSecond {
				t.Errorf("the second endpoint got the request %d times, want %d", got, tc.wantSecond)
			}
		})
	}
}
