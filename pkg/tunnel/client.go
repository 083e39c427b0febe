package tunnel

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/hashicorp/yamux"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// maxAnswer bounds what is read of an answer that refuses the tunnel.
const maxAnswer = 64 << 10

// Transport returns a transport for cfg that speaks HTTP/1.1 only, so that connections
// can be upgraded.
func Transport(cfg *rest.Config) (http.RoundTripper, error) {
	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot set up TLS for %q: %w", cfg.Host, err)
	}
	if tls != nil {
		tls.NextProtos = []string{"http/1.1"}
	}
	proxy := http.ProxyFromEnvironment
	if cfg.Proxy != nil {
		proxy = cfg.Proxy
	}
	// With a TLSClientConfig and no ForceAttemptHTTP2 there is no HTTP/2.
	rt, err := rest.HTTPWrappersForConfig(cfg, &http.Transport{
		Proxy: proxy, DialContext: cfg.Dial, TLSClientConfig: tls, TLSHandshakeTimeout: openTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot set up authentication for %q: %w", cfg.Host, err)
	}
	return rt, nil
}

// Open opens a tunnel to url over rt, which speaks HTTP/1.1, and returns the listener
// of its streams. The listener fails when the tunnel ends; closing it ends the tunnel.
func Open(ctx context.Context, rt http.RoundTripper, url string) (net.Listener, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot ask for a tunnel: %w", err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", Protocol)
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("cannot open a tunnel: %w", err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, fmt.Errorf("the server refuses a tunnel: %s: %s", resp.Status, reason(resp.Body))
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || !strings.EqualFold(resp.Header.Get("Upgrade"), Protocol) {
		resp.Body.Close()
		return nil, fmt.Errorf("the server answers with protocol %q in place of %q", resp.Header.Get("Upgrade"), Protocol)
	}
	session, err := yamux.Server(conn, config())
	if err != nil {
		resp.Body.Close()
		return nil, fmt.Errorf("cannot begin a tunnel: %w", err)
	}
	return session, nil
}

// reason returns the message of a Status, or what there is in its place.
func reason(body io.Reader) string {
	b, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err != nil {
		return err.Error()
	}
	status := metav1.Status{}
	if json.Unmarshal(b, &status) == nil && status.Message != "" {
		return status.Message
	}
	return strings.TrimSpace(string(b))
}
