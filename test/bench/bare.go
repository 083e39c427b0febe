package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/13eedeaf/kcp/pkg/heap"
)

// The bare servers show what Go's HTTP costs where it does nothing else: the limit of what
// is built on it.
const (
	bareHello = "hello"
	bareProxy = "proxy"
	// bareEnv makes this program such a server: it has the address and the backends.
	bareEnv = "BENCH_SERVE"
)

// ServeBare answers until ctx ends if the environment says so, and reports whether it
// does: a proxy where there are backends, and hello where there are none.
func ServeBare(ctx context.Context) (served bool, err error) {
	fields := strings.Fields(os.Getenv(bareEnv))
	if len(fields) == 0 {
		return false, nil
	}
	heap.Keep(heap.Pace{AtLeast: 64 << 20, Percent: 100})
	server := &http.Server{Addr: fields[0], Handler: hello(), ReadHeaderTimeout: time.Minute}
	if backends := fields[1:]; len(backends) > 0 {
		server.Handler = reverse(backends)
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return true, err
	}
	return true, nil
}

func hello() http.Handler {
	body := []byte("hello from the backend\n")
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
}

// reverse takes one backend after the other.
func reverse(backends []string) http.Handler {
	var next atomic.Uint64
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", backends[next.Add(1)%uint64(len(backends))]
			r.SetXForwarded()
		},
		Transport:  &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
		BufferPool: &buffers{},
	}
}

type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return *buf
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(buf []byte) { b.pool.Put(&buf) }

// startBare runs one of the bare servers in a process of its own: this very program.
func startBare(ctx context.Context, dir, kind string, backends []string) (*route, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
	if kind == bareHello {
		backends = nil
	}
	p, err := start(ctx, dir, "bare-"+kind, "", []string{self}, bareEnv+"="+strings.Join(append([]string{address}, backends...), " "))
	return &route{name: "bare " + kind, address: address, process: p}, err
}
