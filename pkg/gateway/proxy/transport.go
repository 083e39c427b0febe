package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// keptBody is the largest body that is kept in order to be sent again.
	keptBody = 64 << 10
	// maxAttempts bounds how many endpoints one request may try.
	maxAttempts = 8
	// idleTimeout is below what servers commonly allow (5 s and more), so that it is
	// rarely the endpoint which closes an idle connection, just as a request goes out.
	idleTimeout = 4 * time.Second
)

var errClientBody = errors.New("cannot read the request's body")

// newDialer returns what makes the connections to endpoints.
func newDialer(options Options) *net.Dialer {
	return &net.Dialer{Timeout: options.DialTimeout, KeepAlive: 15 * time.Second, Control: controlSocket}
}

// newTransport returns those of requests that are not plain.
func newTransport(options Options, dialer *net.Dialer) *http.Transport {
	return &http.Transport{
		DialContext:            dialer.DialContext,
		MaxIdleConns:           4096,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		ResponseHeaderTimeout:  options.ResponseTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHead,
		// Bodies pass as they are.
		DisableCompression: true,
	}
}

// balancer is the Proxy as the ReverseProxy's transport: it chooses the endpoint, and
// another one where that is safe.
type balancer Proxy

func (b *balancer) RoundTrip(in *http.Request) (*http.Response, error) {
	p := (*Proxy)(b)
	f, ok := in.Context().Value(flowKey{}).(*flow)
	if !ok {
		return nil, errNotReady
	}
	body, err := newBody(in)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errClientBody, err)
	}
	var resp *http.Response
	err = p.attempt(f, in, body, func(e *endpoint) (err error) {
		resp, err = p.transport.RoundTrip(body.request(in, e.address)) //nolint:bodyclose // the caller has it
		return err
	})
	return resp, err
}

// attempt has try send the request to an endpoint, and to another one where that is safe.
// The one where it succeeded is held when it returns nil.
func (p *Proxy) attempt(f *flow, in *http.Request, body *requestBody, try func(*endpoint) error) error {
	var tried []*endpoint
	var last error
	var lastFailed *endpoint
	for range maxAttempts {
		err := p.acquire(f, in.Host, in.URL.Path, tried)
		if errors.Is(err, errNoEndpoint) && last != nil && !isDialError(last) {
			// All were tried, and at least the last could be reached: no reason to say
			// that nothing is there.
			return last
		}
		if err != nil {
			return errors.Join(err, last)
		}
		if err = try(f.held.endpoint); err == nil {
			return nil
		}
		failed := f.held.endpoint
		p.release(f)
		p.suspect(failed, err)
		if !body.mayRetry(in, err) {
			return err
		}
		p.metrics.retries.Inc()
		// A connection that broke may just have been an old one: the endpoint gets a
		// second chance. One that refused would refuse again.
		if isDialError(err) || failed == lastFailed {
			tried = append(tried, failed)
		}
		last, lastFailed = err, failed
	}
	return last
}

// suspect draws the consequence of a failed attempt for the endpoint.
func (p *Proxy) suspect(e *endpoint, err error) {
	switch {
	case isDialError(err):
		p.eject(e)
	case !errors.Is(err, context.Canceled):
		e.probeNow()
	}
}

// isDialError reports whether no connection was made, so that nothing was sent.
func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// requestBody is a body as far as it can be sent more than once.
type requestBody struct {
	// kept is the whole body, where it was small enough.
	kept []byte
	// stream is the body where it was not; nil when there is none.
	stream *streamBody
}

func newBody(in *http.Request) (*requestBody, error) {
	switch {
	case in.Body == nil || in.Body == http.NoBody:
		return &requestBody{}, nil
	case in.ContentLength > 0 && in.ContentLength <= keptBody && in.Header.Get("Expect") == "":
		kept := make([]byte, in.ContentLength)
		if _, err := io.ReadFull(in.Body, kept); err != nil {
			return nil, err
		}
		return &requestBody{kept: kept}, nil
	default:
		return &requestBody{stream: &streamBody{body: in.Body}}, nil
	}
}

// request returns a copy of in for one endpoint.
func (b *requestBody) request(in *http.Request, address string) *http.Request {
	out := *in
	url := *in.URL
	url.Host = address
	out.URL = &url
	switch {
	case b.kept != nil:
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.kept)), nil }
		out.Body = io.NopCloser(bytes.NewReader(b.kept))
	case b.stream != nil:
		out.Body = b.stream
	}
	return &out
}

// mayRetry reports whether the request can be sent again after err.
func (b *requestBody) mayRetry(in *http.Request, err error) bool {
	if in.Context().Err() != nil || b.stream != nil && b.stream.read.Load() {
		return false
	}
	if isDialError(err) {
		return true
	}
	var op *net.OpError
	var timeout net.Error
	if !errors.As(err, &op) && errors.As(err, &timeout) && timeout.Timeout() {
		// Connected, sent, no answer in time: another one would be no quicker, and the
		// client has waited.
		return false
	}
	return idempotent(in)
}

// idempotent follows RFC 9110, 9.2.2, and the header that clients set to say so.
func idempotent(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header.Get("Idempotency-Key") != "" || r.Header.Get("X-Idempotency-Key") != ""
}

// streamBody remembers whether anything was read. Its Close does nothing, as a failed
// attempt closes its body; the server closes the real one.
type streamBody struct {
	body io.Reader
	read atomic.Bool
}

func (s *streamBody) Read(b []byte) (int, error) {
	s.read.Store(true)
	return s.body.Read(b)
}

func (s *streamBody) Close() error { return nil }
