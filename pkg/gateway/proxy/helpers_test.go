package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/13eedeaf/kcp/pkg/gateway/proxy"
	"github.com/13eedeaf/kcp/pkg/gateway/table"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

const host = "demo.example.com"

var shop = table.NamespaceKey{Cluster: "ws1", Namespace: "shop"}

// app is a backend that says its name and counts.
type app struct {
	*httptest.Server

	requests atomic.Int64
}

func newApp(t *testing.T, name string) *app {
	a := &app{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.requests.Add(1)
		if r.Header.Get("Upgrade") != "" {
			echo(w)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.Header().Set("X-App", name)
		_, _ = fmt.Fprintf(w, "%s %s", name, body)
	}))
	t.Cleanup(a.Close)
	return a
}

// echo takes the connection over and returns what it gets, as a WebSocket might.
func echo(w http.ResponseWriter) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_ = rw.Flush()
	_, _ = io.Copy(conn, rw)
}

func (a *app) address() string { return strings.TrimPrefix(a.URL, "http://") }

// kill closes the listener and cuts all connections, as kill -9 does.
func (a *app) kill() {
	_ = a.Listener.Close()
	a.CloseClientConnections()
}

// gateway is a proxy behind a real listener, and the table that it serves.
type gateway struct {
	*proxy.Proxy

	t        *testing.T
	registry *prometheus.Registry
	url      string
	table    *table.Table
	news     chan table.NamespaceKey
}

func newGateway(t *testing.T, mutate ...func(*proxy.Options)) *gateway {
	g := &gateway{t: t, registry: prometheus.NewRegistry(), news: make(chan table.NamespaceKey, 1000)}
	options := proxy.DefaultOptions()
	options.ProbeInterval = 50 * time.Millisecond
	options.OnChange = func(key table.NamespaceKey) {
		select {
		case g.news <- key:
		default:
		}
	}
	for _, f := range mutate {
		f(&options)
	}
	ctx, cancel := context.WithCancel(t.Context())
	g.Proxy = proxy.Start(ctx, options, proxy.NewMetrics(g.registry))
	server := httptest.NewServer(g.Proxy)
	g.url = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		cancel()
		g.Close()
	})
	return g
}

// metric returns the value of a counter.
func (g *gateway) metric(name string) float64 {
	g.t.Helper()
	families, err := g.registry.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	g.t.Fatalf("no metric %q", name)
	return 0
}

// part is one target with its endpoints.
type part struct {
	target string
	state  table.EndpointState
	drain  bool
	at     []string
}

func active(target string, at ...string) part {
	return part{target: target, state: table.Ready, at: at}
}

func draining(target string, at ...string) part {
	return part{target: target, state: table.Ready, drain: true, at: at}
}

func (p part) in(s table.EndpointState) part {
	p.state = s
	return p
}

// serve puts a table in force that has one host with one backend.
func (g *gateway) serve(parts ...part) {
	ns := &table.Namespace{NamespaceKey: shop}
	backend := table.Backend{Service: "hello", Port: "80"}
	for _, p := range parts {
		ns.Targets = append(ns.Targets, table.Target{Key: p.target, Generation: 1, Draining: p.drain})
		for _, address := range p.at {
			backend.Endpoints = append(backend.Endpoints, table.Endpoint{Target: p.target, Address: address, State: p.state})
		}
	}
	ns.Backends = []table.Backend{backend}
	ns.Ingresses = []table.Ingress{{Name: "web", Hosts: []table.HostRules{{Host: host, Paths: []table.PathRule{{Path: "/"}}}}}}
	g.table, _ = table.Update(g.table, map[table.NamespaceKey]*table.Namespace{shop: ns}, time.Now())
	g.Swap(g.table)
}

// await waits until the namespace's status is as wanted.
func (g *gateway) await(what string, fits func(proxy.Status) bool) proxy.Status {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 20*time.Second)
	defer cancel()
	for {
		s, ok := g.Status(shop)
		if ok && fits(s) {
			return s
		}
		select {
		case <-g.news:
		case <-ctx.Done():
			g.t.Fatalf("waiting for %s: status is %+v", what, s)
		}
	}
}

func (g *gateway) awaitProbes() proxy.Status {
	g.t.Helper()
	return g.await("probes", func(s proxy.Status) bool { return s.Answered })
}

// request returns the status and body of one request.
func (g *gateway) request(method, path, body string) (int, string) {
	g.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(g.t.Context(), method, g.url+path, reader)
	if err != nil {
		g.t.Fatal(err)
	}
	r.Host = host
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// pinger asks without pause, from several clients, until stopped.
type pinger struct {
	stop     context.CancelFunc
	group    sync.WaitGroup
	ok       atomic.Int64
	mu       sync.Mutex
	failures []string
}

func (g *gateway) ping(clients int) *pinger {
	ctx, cancel := context.WithCancel(g.t.Context())
	p := &pinger{stop: cancel}
	for range clients {
		p.group.Go(func() {
			for ctx.Err() == nil {
				p.once(ctx, g.url)
			}
		})
	}
	g.t.Cleanup(cancel)
	return p
}

func (p *pinger) once(ctx context.Context, url string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/hello", nil)
	if err != nil {
		p.fail(err.Error())
		return
	}
	r.Host = host
	resp, err := http.DefaultClient.Do(r)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		p.fail(err.Error())
		return
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		p.fail(err.Error())
	case resp.StatusCode != http.StatusOK:
		p.fail(fmt.Sprintf("%d %s", resp.StatusCode, body))
	default:
		p.ok.Add(1)
	}
}

func (p *pinger) fail(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = append(p.failures, what)
}

// more waits until n further requests succeeded.
func (p *pinger) more(t *testing.T, n int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d more answers", n), func() func() bool {
		goal := p.ok.Load() + n
		return func() bool { return p.ok.Load() >= goal }
	}())
}

// end stops the clients and reports failures.
func (p *pinger) end(t *testing.T) {
	t.Helper()
	p.stop()
	p.group.Wait()
	if len(p.failures) > 0 {
		t.Errorf("%d requests failed, %d succeeded; the first: %s", len(p.failures), p.ok.Load(), p.failures[0])
	}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// dialUpgrade opens an upgraded connection through the gateway.
func (g *gateway) dialUpgrade() net.Conn {
	g.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "GET /ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", host); err != nil {
		g.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		g.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		g.t.Fatalf("upgrade: got %s", resp.Status)
	}
	return conn
}

// largeTable has n workspaces with a host each, all served at one address.
func largeTable(n int, address string) *table.Table {
	namespaces := make(map[table.NamespaceKey]*table.Namespace, n)
	for i := range n {
		key := table.NamespaceKey{Cluster: logicalcluster.Name(fmt.Sprintf("ws-%d", i)), Namespace: "n"}
		namespaces[key] = &table.Namespace{
			NamespaceKey: key,
			Targets:      []table.Target{{Key: "t", Generation: 1}},
			Backends: []table.Backend{{Service: "hello", Port: "80", Endpoints: []table.Endpoint{
				{Target: "t", Address: address, State: table.Ready},
			}}},
			Ingresses: []table.Ingress{{Name: "web", Hosts: []table.HostRules{
				{Host: fmt.Sprintf("host-%d.example.com", i), Paths: []table.PathRule{{Path: "/"}}},
			}}},
		}
	}
	t, _ := table.Update(nil, namespaces, time.UnixMilli(1))
	return t
}
