package proxy

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// health is what the last probe, or a failed connection, said of an endpoint.
type health int32

const (
	unknown health = iota
	healthy
	unhealthy
)

// endpoint is one address. It lives as long as some table in force names it.
type endpoint struct {
	address  string
	health   atomic.Int32
	inFlight atomic.Int64
	idle     idleConns

	// answered is the epoch in which the last finished probe began, good the same of the
	// last one that succeeded, and want the epoch whose answer somebody waits for.
	answered, good, want atomic.Int64

	kick   chan struct{}
	cancel context.CancelFunc
	// users counts references by namespace; guarded by Proxy.mu.
	users map[nsKey]int
}

func (e *endpoint) is(h health) bool { return health(e.health.Load()) == h }

// probeNow asks for a probe that begins after this call.
func (e *endpoint) probeNow() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// probeLoop probes the endpoint at once, at every interval, and when asked. It also closes
// connections that nobody uses.
func (p *Proxy) probeLoop(ctx context.Context, e *endpoint) {
	defer e.idle.close()
	failures := 0
	for {
		e.idle.prune(time.Now().Add(-idleTimeout))
		began := p.epoch.Load()
		err := p.probe(ctx, e.address)
		if ctx.Err() != nil {
			return
		}
		failures++
		if err == nil {
			failures = 0
		}
		p.probed(e, began, err, failures)
		// Spread, so that endpoints that came together are not probed together for ever.
		interval := time.Duration(float64(p.options.ProbeInterval) * (0.9 + 0.2*rand.Float64()))
		timer := time.NewTimer(interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-e.kick:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// probe connects and hangs up. That the application is ready is the kubelet's word, in
// the EndpointSlice; the probe says that it can be reached from here.
func (p *Proxy) probe(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, p.options.DialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// probed notes a probe's result. A refused connection counts at once, silence only the
// second time, since a busy machine may be late once.
func (p *Proxy) probed(e *endpoint, began int64, err error, failures int) {
	before := health(e.health.Load())
	after := healthy
	if err != nil {
		p.metrics.probeFailures.Inc()
		after = unhealthy
		if failures < 2 && before == healthy && !errors.Is(err, syscall.ECONNREFUSED) {
			after = healthy
		}
	}
	e.health.Store(int32(after))
	if err == nil {
		e.good.Store(began)
	}
	previous := e.answered.Swap(began)
	awaited := e.want.Load()
	if before != after || previous < awaited && awaited <= began {
		p.notifyUsers(e)
	}
}

// eject marks an endpoint to which no connection could be made. The next probe that
// answers brings it back.
func (p *Proxy) eject(e *endpoint) {
	if health(e.health.Swap(int32(unhealthy))) != unhealthy {
		p.metrics.ejections.Inc()
		p.notifyUsers(e)
	}
}
