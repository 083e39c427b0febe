package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/13eedeaf/kcp/pkg/gateway/proxy"
)

// scripted is an application that notes what it is asked and answers what it was told.
type scripted struct {
	net.Listener

	asked  chan string
	answer string
	closed chan struct{}
}

func newScripted(t *testing.T, answer string) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{Listener: l, asked: make(chan string, 100), answer: answer, closed: make(chan struct{}, 100)}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

// serve closes the connection after an answer that does not say how long it is.
func (s *scripted) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		s.closed <- struct{}{}
	}()
	reader := bufio.NewReader(conn)
	for {
		var head []string
		for {
			line, err := reader.ReadString('\n')
			if err != nil {
				return // a probe, or the gateway has enough
			}
			if line = strings.TrimSpace(line); line == "" {
				break
			}
			head = append(head, line)
		}
		// The order of headers is nobody's business.
		slices.Sort(head[1:])
		s.asked <- strings.Join(head, "\n")
		_, _ = io.WriteString(conn, s.answer)
		if !strings.Contains(s.answer, "Content-Length") && !strings.Contains(s.answer, "chunked") {
			return
		}
	}
}

// heard is an answer as the client sees it.
type heard struct {
	Informational []string
	Status        string
	Header        http.Header
	Body          string
	Trailer       http.Header
}

// say sends a raw request and reads the answer.
func say(t *testing.T, address, request string) heard {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	reader := bufio.NewReader(conn)
	var out heard
	for {
		resp, err := http.ReadResponse(reader, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("no answer: %v", err)
		}
		if resp.StatusCode < http.StatusOK {
			out.Informational = append(out.Informational, fmt.Sprint(resp.Status, resp.Header))
			continue
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("cannot read the body: %v", err)
		}
		resp.Header.Del("Date")
		out.Status, out.Header, out.Body, out.Trailer = resp.Status, resp.Header, string(body), resp.Trailer
		return out
	}
}

// TestForwardAsReverseProxy compares what passes the gateway, in both directions, with
// what passes the standard library's reverse proxy.
func TestForwardAsReverseProxy(t *testing.T) {
	get := func(target string, headers ...string) string {
		return "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(append(headers, "", ""), "\r\n")
	}
	cases := map[string]struct{ request, answer string }{
		"Plain":           {get("/"), ok("fine")},
		"Query":           {get("/a?x=1;2&y=%zz&z"), ok("fine")},
		"Path":            {get("/a%2Fb/../c%20d"), ok("fine")},
		"Absolute":        {get("http://" + host + "/x?y"), ok("fine")},
		"Head":            {strings.Replace(get("/"), "GET", "HEAD", 1), "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"},
		"Headers":         {get("/", "Cookie: a=1", "Cookie: b=2", "User-Agent: x", "Accept: */*", "x-odd-case: 1", "Empty:"), ok("fine")},
		"HopByHop":        {get("/", "Connection: keep-alive", "Keep-Alive: 5", "Proxy-Authorization: x", "Proxy-Connection: y"), ok("fine")},
		"NamedInConn":     {get("/", "Connection: keep-alive, X-Mine", "X-Mine: 1"), ok("fine")},
		"Forged":          {get("/", "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Host: evil", "X-Forwarded-Proto: https", "Forwarded: for=x"), ok("fine")},
		"Te":              {get("/", "Te: trailers"), ok("fine")},
		"LengthZero":      {get("/", "Content-Length: 0"), ok("fine")},
		"Body":            {get("/", "Content-Length: 0", "Expect: 100-continue"), ok("fine")},
		"Close":           {get("/", "Connection: close"), ok("fine")},
		"Chunked":         {get("/"), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n3\r\n, 2\r\n0\r\n\r\n"},
		"Trailers":        {get("/"), "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\nX-Sum: 1\r\n\r\n"},
		"SecretTrailers":  {get("/"), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\nX-Sum: 1\r\n\r\n"},
		"UntilClose":      {get("/"), "HTTP/1.1 200 OK\r\n\r\nfine"},
		"Old":             {get("/"), "HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nfine"},
		"AnswerHopByHop":  {get("/"), "HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nProxy-Authenticate: x\r\nContent-Length: 4\r\n\r\nfine"},
		"AnswerHeaders":   {get("/"), "HTTP/1.1 404 Gone Fishing\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nServer: x\r\nEmpty:\r\nContent-Length: 4\r\n\r\nfine"},
		"NoContent":       {get("/"), "HTTP/1.1 204 No Content\r\nX-Y: z\r\nContent-Length: 0\r\n\r\n"},
		"NotModified":     {get("/"), "HTTP/1.1 304 Not Modified\r\nEtag: x\r\nContent-Length: 100\r\n\r\n"},
		"Empty":           {get("/"), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		"EarlyHints":      {get("/"), "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/x\r\nX-Y: z\r\nContent-Length: 4\r\n\r\nfine"},
		"Large":           {get("/"), ok(strings.Repeat("0123456789abcdef", 1<<14))},
		"NotPlainMethod":  {strings.Replace(get("/"), "GET", "DELETE", 1), ok("fine")},
		"EventsWithWords": {get("/"), "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nContent-Length: 4\r\n\r\nfine"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			app := newScripted(t, tc.answer)
			g := newGateway(t)
			g.serve(active("ta", app.Addr().String()))
			g.awaitProbes()
			reverse := &httputil.ReverseProxy{
				Rewrite: func(r *httputil.ProxyRequest) {
					r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.RawQuery = "http", app.Addr().String(), r.In.URL.RawQuery
					r.SetXForwarded()
				},
				Transport: &http.Transport{DisableCompression: true},
			}
			bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Content-Type"] = nil // not guessed
				reverse.ServeHTTP(w, r)
			}))
			t.Cleanup(bare.Close)
			want := say(t, bare.Listener.Addr().String(), tc.request)
			wantAsked := <-app.asked
			got := say(t, strings.TrimPrefix(g.url, "http://"), tc.request)
			if diff := cmp.Diff(wantAsked, <-app.asked); diff != "" {
				t.Errorf("request at the application (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answer at the client (-want +got):\n%s", diff)
			}
		})
	}
}

// TestForwardBadAnswers has applications that break the protocol.
func TestForwardBadAnswers(t *testing.T) {
	cases := map[string]struct {
		answer string
		want   int
	}{
		"Garbage":         {"hello\r\n\r\nContent-Length", http.StatusBadGateway},
		"UnaskedSwitch":   {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nContent-Length: 0\r\n\r\n", http.StatusBadGateway},
		"EndlessHead":     {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nX: " + strings.Repeat("x", 2<<20) + "\r\n\r\n1", http.StatusBadGateway},
		"EndlessPatience": {strings.Repeat("HTTP/1.1 103 Early Hints\r\nContent-Length: 0\r\n\r\n", 100), http.StatusBadGateway},
		"Silence":         {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n", http.StatusGatewayTimeout},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			app := newScripted(t, tc.answer)
			g := newGateway(t, func(o *proxy.Options) { o.ResponseTimeout = 300 * time.Millisecond })
			g.serve(active("ta", app.Addr().String()))
			g.awaitProbes()
			if code, body := g.request(http.MethodGet, "/", ""); code != tc.want {
				t.Errorf("status %d (%q), want %d", code, body, tc.want)
			}
		})
	}
	// What comes after an answer belongs to nobody.
	app := newScripted(t, ok("one")+ok("smuggled"))
	g := newGateway(t)
	g.serve(active("ta", app.Addr().String()))
	g.awaitProbes()
	for range 20 {
		if code, body := g.request(http.MethodGet, "/", ""); code != http.StatusOK || body != "one" {
			t.Fatalf("got %d %q, want 200 one", code, body)
		}
	}
}

// TestForwardCutAnswer: a client must not take half an answer for a whole one.
func TestForwardCutAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"Length":  "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
		"Chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nhalf",
	} {
		t.Run(name, func(t *testing.T) {
			s := rawServer(t, func(int) (string, bool) { return answer, false })
			g := newGateway(t)
			g.serve(active("ta", s.address))
			g.awaitProbes()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				return // it may learn it before the head has gone out
			}
			defer func() { _ = resp.Body.Close() }()
			if body, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("read %q without an error", body)
			}
		})
	}
}

// TestForwardClientLeaves: a request ends with its client, also while the application
// says nothing, before and after the head of its answer.
func TestForwardClientLeaves(t *testing.T) {
	for name, answer := range map[string]string{
		"BeforeTheHead": "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n",
		"InTheBody":     "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
	} {
		t.Run(name, func(t *testing.T) {
			app := newScripted(t, answer)
			g := newGateway(t, func(o *proxy.Options) { o.ProbeInterval = time.Hour })
			g.serve(active("ta", app.Addr().String()))
			g.awaitProbes()
			<-app.closed // the probe
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			go func() {
				<-app.asked
				// By then the gateway watches the client; if it is slower than that, it
				// has yet to look, which must end the request as well.
				time.AfterFunc(200*time.Millisecond, leave)
			}()
			if resp, err := http.DefaultClient.Do(r); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			select {
			case <-app.closed:
			case <-time.After(time.Minute):
				t.Fatal("the application is still asked after a minute")
			}
			if n := g.InFlight(); n > 1 {
				t.Errorf("%d requests in flight", n)
			}
		})
	}
}

// TestForwardClosesIdle: connections end with the endpoint, and when nobody uses them.
func TestForwardClosesIdle(t *testing.T) {
	app := newScripted(t, ok("fine"))
	g := newGateway(t, func(o *proxy.Options) { o.ProbeInterval = time.Hour })
	g.serve(active("ta", app.Addr().String()))
	g.awaitProbes()
	<-app.closed // the probe
	for range 5 {
		if code, _ := g.request(http.MethodGet, "/", ""); code != http.StatusOK {
			t.Fatalf("status %d", code)
		}
	}
	select {
	case <-app.closed:
		t.Fatal("a connection was closed between requests")
	default:
	}
	other := newApp(t, "other")
	g.serve(active("ta", other.address()))
	select {
	case <-app.closed:
	case <-time.After(time.Minute):
		t.Fatal("a connection to an endpoint that is gone is open after a minute")
	}
}
