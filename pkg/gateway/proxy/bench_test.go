package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/13eedeaf/kcp/pkg/gateway/proxy"
	"github.com/13eedeaf/kcp/pkg/gateway/table"
)

// buffers is the bare proxy's pool.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return *buf
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(buf []byte) { b.pool.Put(&buf) }

// BenchmarkProxy compares the gateway with the bare ReverseProxy that it is built on:
// small answers over kept connections, with a table of 1,000 hosts.
func BenchmarkProxy(b *testing.B) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	}))
	b.Cleanup(backend.Close)
	target, err := url.Parse(backend.URL)
	if err != nil {
		b.Fatal(err)
	}
	bare := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		Transport:  &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
		BufferPool: &buffers{},
	}
	gateway := proxy.Start(b.Context(), proxy.DefaultOptions(), proxy.NewMetrics(prometheus.NewRegistry()))
	gateway.Swap(largeTable(1000, backend.Listener.Addr().String()))

	for name, handler := range map[string]http.Handler{"httputil": bare, "gateway": gateway} {
		b.Run(name, func(b *testing.B) {
			front := httptest.NewServer(handler)
			b.Cleanup(front.Close)
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, front.URL+"/hello", nil)
					if err != nil {
						b.Error(err)
						return
					}
					r.Host = "host-500.example.com"
					resp, err := client.Do(r)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					if resp.StatusCode != http.StatusOK {
						b.Errorf("status %d", resp.StatusCode)
						return
					}
				}
			})
		})
	}
}

// BenchmarkUpdate is what one changed namespace among many costs.
func BenchmarkUpdate(b *testing.B) {
	gateway := proxy.Start(b.Context(), proxy.DefaultOptions(), proxy.NewMetrics(prometheus.NewRegistry()))
	t := largeTable(10000, "127.0.0.1:1")
	key := table.NamespaceKey{Cluster: "ws-500", Namespace: "n"}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		changed := *t.Namespaces[key]
		changed.Targets = []table.Target{{Key: "t", Generation: int64(i + 2)}}
		t, _ = table.Update(t, map[table.NamespaceKey]*table.Namespace{key: &changed}, changed.Ingresses[0].Created)
		gateway.Swap(t)
	}
}
