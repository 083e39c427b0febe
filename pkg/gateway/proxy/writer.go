package proxy

import (
	"context"
	"log"
	"net/http"
	"sync"

	"k8s.io/klog/v2"
)

// statusWriter remembers the status for the metrics.
type statusWriter struct {
	http.ResponseWriter

	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.status = status
		if h := w.Header(); h["Content-Type"] == nil {
			// The server would guess it from the body. That is the application's to say.
			h["Content-Type"] = nil
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap gives http.ResponseController the writer below, which can flush and hijack.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// bufferPool lends the buffers through which bodies are copied.
type bufferPool struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *bufferPool) borrow() *[]byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return buf
	}
	buf := make([]byte, bufferSize)
	return &buf
}

// Get and Put implement httputil.BufferPool.
func (b *bufferPool) Get() []byte { return *b.borrow() }

func (b *bufferPool) Put(buf []byte) { b.pool.Put(&buf) }

// QuietLog sends what httputil and net/http log of broken connections, which clients can
// cause at will, to a verbosity that is off by default.
func QuietLog(ctx context.Context) *log.Logger {
	return log.New(klogWriter{klog.FromContext(ctx)}, "", 0)
}

type klogWriter struct{ logger klog.Logger }

func (w klogWriter) Write(b []byte) (int, error) {
	w.logger.V(4).Info("Connection trouble", "message", string(b))
	return len(b), nil
}
