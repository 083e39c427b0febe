package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/gateway/proxy"
	"github.com/13eedeaf/kcp/pkg/gateway/report"
	"github.com/13eedeaf/kcp/pkg/gateway/table"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/version"
)

const (
	// headTimeout bounds how long a client may take to send a request's head.
	headTimeout = 10 * time.Second
	// idleTimeout is how long a client's connection may be idle.
	idleTimeout = 2 * time.Minute
	// maxHead bounds a request's head.
	maxHead = 64 << 10
	// drainCheck is how often the end of streams is looked for at shutdown.
	drainCheck = 20 * time.Millisecond
)

// Gateway is one gateway process. New makes one, Run runs it once.
type Gateway struct {
	config   *Config
	client   *client
	listener net.Listener
	admin    net.Listener
	registry *prometheus.Registry
	proxy    atomic.Pointer[proxy.Proxy]
	// serving is true while there is a table and the gateway accepts requests.
	serving atomic.Bool
}

// New listens on the configured addresses; Run serves there.
func New(config *Config) (*Gateway, error) {
	c, err := newClient(config.restConfig)
	if err != nil {
		return nil, err
	}
	g := &Gateway{config: config, client: c, registry: prometheus.NewRegistry()}
	if g.listener, err = net.Listen("tcp", config.options.Listen); err != nil { //nolint:noctx // at once
		return nil, fmt.Errorf("cannot serve on --listen %q: %w", config.options.Listen, err)
	}
	if config.options.AdminListen != "" {
		if g.admin, err = net.Listen("tcp", config.options.AdminListen); err != nil { //nolint:noctx // at once
			return nil, errors.Join(fmt.Errorf("cannot serve on --admin-listen %q: %w", config.options.AdminListen, err), g.listener.Close())
		}
	}
	return g, nil
}

// Addr is where requests are served.
func (g *Gateway) Addr() net.Addr { return g.listener.Addr() }

// AdminAddr is where /healthz and the like are served; nil if they are not.
func (g *Gateway) AdminAddr() net.Addr {
	if g.admin == nil {
		return nil
	}
	return g.admin.Addr()
}

// Describe says in one line what runs where.
func (g *Gateway) Describe() string {
	out := fmt.Sprintf("kcp gateway %q serves HTTP on %s, known as %s", g.config.options.Name, g.Addr(), strings.Join(g.config.options.Addresses, ", "))
	if g.admin != nil {
		out += fmt.Sprintf("; health and metrics on %s", g.admin.Addr())
	}
	return out
}

// Run serves until ctx ends, then lets requests and streams end, for as long as the
// shutdown grace. It returns nil after an orderly end.
func (g *Gateway) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithValues("gateway", g.config.options.Name)
	ctx = klog.NewContext(ctx, logger)
	// Everything goes on while requests end: tables, probes and reports of what is in
	// flight are never more needed.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	var reporter *report.Reporter
	options := g.config.options.Proxy
	options.OnChange = func(key table.NamespaceKey) { reporter.Changed(key) }
	p := proxy.Start(background, options, proxy.NewMetrics(g.registry))
	defer p.Close()
	reporter = report.New(g.client, p, g.config.options.Name)
	g.proxy.Store(p)

	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	g.runControl(background, &group, p, reporter)

	server := &http.Server{
		Handler:           p,
		ReadHeaderTimeout: headTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHead,
		BaseContext:       func(net.Listener) context.Context { return background },
		ErrorLog:          proxy.QuietLog(background),
	}
	failed := make(chan error, 1)
	group.Go(func() {
		if err := server.Serve(g.listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("cannot serve HTTP: %w", err)
		}
	})
	if g.admin != nil {
		group.Go(func() { g.serveAdmin(background) })
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	return g.drain(background, server, p)
}

// runControl starts all that makes tables and reports.
func (g *Gateway) runControl(ctx context.Context, group *sync.WaitGroup, p *proxy.Proxy, reporter *report.Reporter) {
	in := newInputs(g.client, g.config.options.Name)
	in.reports.AddHandler(func(e informer.Event[*networkingv1alpha1.GatewayReport]) {
		key := table.NamespaceKey{Cluster: e.Key.Cluster, Namespace: e.Key.Namespace}
		switch {
		case e.Deleted:
			reporter.Lost(key)
		case e.Added:
			reporter.Changed(key)
		}
	})
	g.registry.MustRegister(newStreamMetrics(in.streams))
	b := &builder{inputs: in, proxy: p, changed: reporter.Changed, path: g.config.statePath(), save: make(chan *table.Table, 1)}
	lease := &report.Lease{
		Client:    g.client,
		Name:      g.config.options.Name,
		Addresses: g.config.options.Addresses,
		Version:   version.Get().Version,
	}
	// A gateway without a table serves nobody: no handover has to wait for its word.
	var once sync.Once
	serve := func() {
		once.Do(func() {
			g.serving.Store(true)
			group.Go(func() { lease.Run(ctx) })
		})
	}
	if b.restore(ctx); b.table != nil {
		serve()
	}
	group.Go(func() { in.run(ctx) })
	group.Go(func() { b.keep(ctx) })
	group.Go(func() {
		b.run(ctx, func() {
			serve()
			group.Go(func() { reporter.Run(ctx) })
		})
	})
}

// drain ends the server: nothing new, then the end of what is in flight or of the grace.
func (g *Gateway) drain(ctx context.Context, server *http.Server, p *proxy.Proxy) error {
	g.serving.Store(false)
	logger := klog.FromContext(ctx)
	logger.Info("Shutting down", "inFlight", p.InFlight(), "grace", g.config.options.ShutdownGrace)
	ctx, cancel := context.WithTimeout(ctx, g.config.options.ShutdownGrace)
	defer cancel()
	// An error says that the grace ended first, which is reported below.
	_ = server.Shutdown(ctx)
	ticker := time.NewTicker(drainCheck)
	defer ticker.Stop()
	// Shutdown does not know of upgraded connections.
	for p.InFlight() > 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	if n := p.InFlight(); n > 0 {
		logger.Info("Cutting what did not end in time", "inFlight", n)
	}
	return server.Close()
}
