package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/13eedeaf/kcp/pkg/gateway/table"
)

// Options are the settings of a Proxy.
type Options struct {
	// DialTimeout bounds one attempt to connect to an endpoint, probes included.
	DialTimeout time.Duration
	// ResponseTimeout bounds the wait for the head of an answer.
	ResponseTimeout time.Duration
	// ProbeInterval is the time between probes of one endpoint.
	ProbeInterval time.Duration
	// OnChange is called when Status of the namespace may have changed. It must not
	// block.
	OnChange func(table.NamespaceKey)
}

// DefaultOptions returns the settings that fit most networks.
func DefaultOptions() Options {
	return Options{
		DialTimeout:     time.Second,
		ResponseTimeout: time.Minute,
		ProbeInterval:   time.Second,
		OnChange:        func(table.NamespaceKey) {},
	}
}

// Proxy is the handler. Start makes one.
type Proxy struct {
	// ctx ends the probes, which begin and end with tables rather than with a call.
	ctx       context.Context
	options   Options
	metrics   *Metrics
	reverse   httputil.ReverseProxy
	transport *http.Transport
	dialer    *net.Dialer
	buffers   bufferPool

	current  atomic.Pointer[runtime]
	epoch    atomic.Int64
	inFlight atomic.Int64

	// mu orders Swaps and guards what follows.
	mu        sync.Mutex
	endpoints map[string]*endpoint
	targets   map[targetKey]*target
	// leftover are targets that some namespace may have lost.
	leftover map[targetKey]bool
}

// Start returns a Proxy without a table, which answers 503. Its probes run until ctx
// ends; requests are not bound to ctx.
func Start(ctx context.Context, options Options, metrics *Metrics) *Proxy {
	p := &Proxy{
		ctx:       ctx,
		options:   options,
		metrics:   metrics,
		endpoints: map[string]*endpoint{},
		targets:   map[targetKey]*target{},
		leftover:  map[targetKey]bool{},
	}
	p.dialer = newDialer(options)
	p.transport = newTransport(options, p.dialer)
	p.reverse = httputil.ReverseProxy{
		Rewrite:      rewrite,
		Transport:    (*balancer)(p),
		ErrorHandler: p.fail,
		BufferPool:   &p.buffers,
		ErrorLog:     QuietLog(ctx),
	}
	return p
}

// rewrite keeps the request as it came, Host and query included, and says who sent it.
func rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme = "http"
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.SetXForwarded()
}

// flow is a request on its way: where it goes and what it counts for.
type flow struct {
	namespace nsKey
	backend   *backend
	runtime   *runtime
	held      candidate
}

type flowKey struct{}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	p.inFlight.Add(1)
	counted := &statusWriter{ResponseWriter: w}
	f := &flow{}
	defer func() {
		p.release(f)
		p.inFlight.Add(-1)
		p.metrics.request(counted.status, time.Since(began))
	}()
	if err := p.route(f, r.Host, r.URL.Path); err != nil {
		p.fail(counted, r, err)
		return
	}
	if plain(r) {
		p.forward(counted, r, f)
		return
	}
	p.reverse.ServeHTTP(counted, r.WithContext(context.WithValue(r.Context(), flowKey{}, f)))
}

// route finds the backend in the table that is in force.
func (p *Proxy) route(f *flow, host, path string) error {
	rt := p.current.Load()
	if rt == nil {
		return errNotReady
	}
	route, ok := rt.table.Match(host, path)
	if !ok {
		return errNoRoute
	}
	ns := rt.namespaces[route.Namespace]
	f.runtime, f.namespace, f.backend = rt, ns.data.NamespaceKey, ns.backends[route.Backend]
	return nil
}

// acquire chooses an endpoint by the table in force and counts the request for it.
func (p *Proxy) acquire(f *flow, host, path string, tried []*endpoint) error {
	for {
		if f.runtime != p.current.Load() {
			if err := p.route(f, host, path); err != nil {
				return err
			}
		}
		c, ok := f.backend.pick(tried)
		if !ok {
			return errNoEndpoint
		}
		c.endpoint.inFlight.Add(1)
		c.target.inFlight.Add(1)
		f.held = c
		// Counted first and checked then: whoever swaps and reads the count afterwards
		// either sees this request or makes it choose again.
		if f.runtime == p.current.Load() {
			p.changed(f)
			return nil
		}
		p.release(f)
	}
}

// release ends the count that acquire began, if any.
func (p *Proxy) release(f *flow) {
	if f.held.endpoint == nil {
		return
	}
	f.held.endpoint.inFlight.Add(-1)
	f.held.target.inFlight.Add(-1)
	p.changed(f)
	f.held = candidate{}
}

func (p *Proxy) changed(f *flow) {
	if f.held.target.draining.Load() {
		p.options.OnChange(f.namespace)
	}
}

// InFlight is the number of requests and streams now open.
func (p *Proxy) InFlight() int64 { return p.inFlight.Load() }

// Close drops idle connections to endpoints.
func (p *Proxy) Close() {
	p.transport.CloseIdleConnections()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.endpoints {
		e.idle.close()
	}
}

var (
	errNoRoute    = errors.New("no route for this host and path")
	errNoEndpoint = errors.New("no healthy endpoint")
	errNotReady   = errors.New("not ready")
)

// fail answers for the gateway itself. Bodies are the same for all tenants.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, body := http.StatusBadGateway, "the application did not answer properly"
	var timeout net.Error
	switch {
	case r.Context().Err() != nil:
		// The client went away: nobody reads this.
		status, body = statusClientGone, "client closed the request"
	case errors.Is(err, errNoRoute):
		status, body = http.StatusNotFound, errNoRoute.Error()
	case errors.Is(err, errNoEndpoint), errors.Is(err, errNotReady):
		status, body = http.StatusServiceUnavailable, errNoEndpoint.Error()
		w.Header().Set("Retry-After", "1")
	case errors.Is(err, errClientBody):
		status, body = http.StatusBadRequest, errClientBody.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		status, body = http.StatusGatewayTimeout, "the application did not answer in time"
	}
	if status >= http.StatusInternalServerError {
		klog.FromContext(p.ctx).V(2).Info("Request failed", "host", r.Host, "path", r.URL.Path, "status", status, "err", err)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// An error means that the client went away.
	_, _ = io.WriteString(w, body+"\n")
}

// statusClientGone is what logs and metrics say, as nginx does, where the client left.
const statusClientGone = 499

// Table returns the table in force, nil if there is none.
func (p *Proxy) Table() *table.Table {
	if rt := p.current.Load(); rt != nil {
		return rt.table
	}
	return nil
}
