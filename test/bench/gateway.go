package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/13eedeaf/kcp/pkg/gateway/table"
)

const (
	gatewayHost = "bench.example.com"
	// gatewayBackends is how many endpoints there are to choose from.
	gatewayBackends = 2
	// gatewayClients keep a connection each.
	gatewayClients = 16
	// gatewayRounds is how often the ways are tried in turn.
	gatewayRounds = 3
)

// route is one way to the backends.
type route struct {
	name    string
	address string
	// process is nil for the direct way.
	process *process
	// one is what was sampled with one client, many with all of them.
	one, many       []time.Duration
	oneCPU, manyCPU float64
	manyTime        time.Duration
	failed          int
}

// gatewayLoad compares the gateway with HAProxy, keep-alive, small bodies.
func gatewayLoad(ctx context.Context, e *Env) error {
	dir, err := e.dir("gateway")
	if err != nil {
		return err
	}
	backends, stop, err := startBackends()
	if err != nil {
		return err
	}
	defer stop()
	routes, stopRoutes, err := e.startRoutes(ctx, dir, backends)
	defer stopRoutes()
	if err != nil {
		return err
	}
	for _, r := range routes {
		if err := eventually(ctx, r.name+" serves", pollInterval, func(ctx context.Context) (bool, error) {
			_, failed := load(ctx, r.address, 1, time.Millisecond)
			return failed == 0, nil
		}); err != nil {
			return err
		}
	}
	length := time.Duration(e.Scale.GatewaySeconds * float64(time.Second))
	for range gatewayRounds {
		for _, r := range routes {
			if err := r.round(ctx, length); err != nil {
				return err
			}
		}
	}
	return e.reportGateway(routes)
}

// The ways in the order in which they are tried; HAProxy may be missing.
const (
	wayDirect = iota
	wayGateway
	wayBareProxy
	wayBareHello
	wayHAProxy
)

func (e *Env) startRoutes(ctx context.Context, dir string, backends []string) (routes []*route, stop func(), err error) {
	stop = func() {
		for _, r := range routes {
			r.process.stop()
		}
	}
	routes = []*route{{name: "direct", address: backends[0]}}
	starters := []func() (*route, error){
		func() (*route, error) { return e.startGateway(ctx, dir, backends) },
		func() (*route, error) { return startBare(ctx, dir, bareProxy, backends) },
		func() (*route, error) { return startBare(ctx, dir, bareHello, backends) },
	}
	if _, err := exec.LookPath("haproxy"); err == nil {
		starters = append(starters, func() (*route, error) { return startHAProxy(ctx, dir, backends) })
	} else {
		e.say("haproxy is not installed: the gateway has no baseline")
	}
	for _, start := range starters {
		r, err := start()
		if err != nil {
			return routes, stop, err
		}
		routes = append(routes, r)
	}
	return routes, stop, nil
}

// round sends requests one after the other, then with all clients.
func (r *route) round(ctx context.Context, length time.Duration) error {
	cpu := func(f func() error) (float64, error) {
		if r.process == nil {
			return 0, f()
		}
		return r.process.cpuOf(f)
	}
	run := func(clients int, samples *[]time.Duration) (float64, error) {
		return cpu(func() error {
			got, failed := load(ctx, r.address, clients, length)
			*samples = append(*samples, got...)
			r.failed += failed
			return ctx.Err()
		})
	}
	used, err := run(1, &r.one)
	if err != nil {
		return err
	}
	r.oneCPU += used
	used, err = run(gatewayClients, &r.many)
	r.manyCPU += used
	r.manyTime += length
	return err
}

func (e *Env) reportGateway(routes []*route) error {
	direct, ours := routes[wayDirect], routes[wayGateway]
	added := func(r *route) Measure {
		m, base := latencies(r.one), latencies(direct.one)
		return Measure{Value: m.P50 - base.P50, N: m.N, P50: m.P50 - base.P50, P99: m.P99 - base.P99, CPUSeconds: r.oneCPU}
	}
	perCore := func(r *route) Measure {
		m := Measure{N: len(r.many), CPUSeconds: r.manyCPU}
		if r.manyCPU > 0 {
			m.Value = float64(len(r.many)) / r.manyCPU
		}
		return m
	}
	rate := func(r *route) Measure {
		m := latencies(r.many)
		m.Value, m.CPUSeconds = float64(len(r.many))/r.manyTime.Seconds(), r.manyCPU
		return m
	}
	figures := []Figure{
		{Name: "gateway.added", Unit: "ms", Measure: added(ours)},
		{Name: "gateway.percore", Unit: "requests per CPU second", Measure: perCore(ours)},
		{Name: "gateway.rate", Unit: "requests/s", Measure: rate(ours), Note: fmt.Sprintf("%d clients; p50 and p99 in ms", gatewayClients)},
		{Name: "gateway.failed", Unit: "requests", Measure: Measure{Value: float64(ours.failed), N: len(ours.one) + len(ours.many)}, Target: "0"},
		{Name: "gateway.percore.bareproxy", Unit: "requests per CPU second", Measure: perCore(routes[wayBareProxy]), Note: "httputil.ReverseProxy and nothing else"},
		{Name: "gateway.percore.hello", Unit: "requests per CPU second", Measure: perCore(routes[wayBareHello]), Note: "a net/http server that answers by itself"},
	}
	if len(routes) > wayHAProxy {
		peer := routes[wayHAProxy]
		figures[0] = figures[0].against(added(peer)).ratioAtMost(2)
		figures[1] = figures[1].against(perCore(peer))
		figures[1].Target, figures[1].OfTarget = "≥ 0.6 × baseline", 0.6/figures[1].Ratio
		figures[2] = figures[2].against(rate(peer))
		figures[3] = figures[3].against(Measure{Value: float64(peer.failed), N: len(peer.one) + len(peer.many)})
		figures[4] = figures[4].against(perCore(peer))
		figures[5] = figures[5].against(perCore(peer))
	}
	for _, f := range figures {
		f.Figure = "P13"
		if err := e.report(f); err != nil {
			return err
		}
	}
	return nil
}

// startBackends serves small bodies on loopback.
func startBackends() (addresses []string, stop func(), err error) {
	var servers []*http.Server
	stop = func() {
		for _, s := range servers {
			_ = s.Close() // nothing is left to lose
		}
	}
	body := []byte("hello from the backend\n")
	for range gatewayBackends {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			stop()
			return nil, nil, err
		}
		s := &http.Server{
			ReadHeaderTimeout: time.Minute,
			Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }),
		}
		servers = append(servers, s)
		go func() { _ = s.Serve(l) }()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, stop, nil
}

// load asks for one small thing again and again, for a while.
func load(ctx context.Context, address string, clients int, length time.Duration) (samples []time.Duration, failed int) {
	end := time.Now().Add(length)
	transport := &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}
	defer transport.CloseIdleConnections()
	var mu sync.Mutex
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			var own []time.Duration
			bad := 0
			for first := true; first || time.Now().Before(end) && ctx.Err() == nil; first = false {
				took, err := timed(func() error { return ask(ctx, transport, address) })
				if err != nil {
					bad++
					continue
				}
				own = append(own, took)
			}
			mu.Lock()
			defer mu.Unlock()
			samples = append(samples, own...)
			failed += bad
		})
	}
	group.Wait()
	return samples, failed
}

func ask(ctx context.Context, transport http.RoundTripper, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return err
	}
	req.Host = gatewayHost
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", resp.Status)
	}
	return nil
}

// startGateway runs a gateway that knows its routes from the table on its disk, as after
// a restart while the server is away.
func (e *Env) startGateway(ctx context.Context, dir string, backends []string) (*route, error) {
	state := filepath.Join(dir, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	key := table.NamespaceKey{Cluster: "0123456789abcdef", Namespace: "default"}
	ns := &table.Namespace{
		NamespaceKey: key,
		Targets:      []table.Target{{Key: "target", Generation: 1}},
		Backends:     []table.Backend{{Service: "web", Port: "80"}},
		Ingresses: []table.Ingress{{Name: "web", UID: "uid", Created: time.Now(), Hosts: []table.HostRules{{
			Host: gatewayHost, Paths: []table.PathRule{{Path: "/"}},
		}}}},
	}
	for _, address := range slices.Sorted(slices.Values(backends)) {
		ns.Backends[0].Endpoints = append(ns.Backends[0].Endpoints, table.Endpoint{Target: "target", Address: address, State: table.Ready})
	}
	t, _ := table.Update(nil, map[table.NamespaceKey]*table.Namespace{key: ns}, time.Now())
	if err := t.Save(filepath.Join(state, "bench.json")); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "kubeconfig")
	// Port 1 refuses: the server is away.
	if err := os.WriteFile(config, []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: \"http://127.0.0.1:1\"}}]\n"), 0o600); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	p, err := start(ctx, dir, "gateway", "", []string{e.bin("kcp"), "gateway", "--kubeconfig", config, "--listen", address, "--name", "bench", "--state-dir", state})
	return &route{name: "gateway", address: address, process: p}, err
}

const haproxyConfig = `global
  nbthread %d
  maxconn 4096
defaults
  mode http
  option http-keep-alive
  http-reuse always
  timeout client 1m
  timeout server 1m
  timeout connect 5s
frontend in
  bind %s
  acl ours hdr(host) -i %s
  use_backend web if ours
backend web
  balance roundrobin
  option forwardfor
`

func startHAProxy(ctx context.Context, dir string, backends []string) (*route, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	config := fmt.Appendf(nil, haproxyConfig, 2, address, gatewayHost)
	for i, backend := range backends {
		config = fmt.Appendf(config, "  server s%d %s check\n", i, backend)
	}
	path := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return nil, err
	}
	p, err := start(ctx, dir, "haproxy", "", []string{"haproxy", "-db", "-f", path})
	return &route{name: "haproxy", address: address, process: p}, err
}
