package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// maxSlow is the longest answer /slow gives.
const maxSlow = 60 * time.Second

type app struct {
	hostname string
	version  string
	draining atomic.Bool
	// stopping is closed when WebSockets have to end.
	stopping chan struct{}
	sockets  sync.WaitGroup
}

func newApp(hostname string) *app {
	return &app{hostname: hostname, version: env("DEMO_VERSION", "unknown"), stopping: make(chan struct{})}
}

func (a *app) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", a.hello)
	mux.HandleFunc("/hello", a.hello)
	mux.HandleFunc("/slow", a.slow)
	mux.HandleFunc("/ws", a.echo)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if a.draining.Load() {
			http.Error(w, "stopping", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Clients with a kept-alive connection leave after their next answer,
		// instead of losing a request to a connection that is being closed.
		if a.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		mux.ServeHTTP(w, r)
	})
}

// hello says who answers, with which configuration, as key=value on one line.
func (a *app) hello(w http.ResponseWriter, _ *http.Request) {
	token := setting("TOKEN", env("SECRET_DIR", "/etc/demo/secret"), "token")
	sum := sha256.Sum256([]byte(token))
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "version=%s pod=%s greeting=%s secret=%s secret-sha=%s\n", a.version, a.hostname,
		setting("GREETING", env("CONFIG_DIR", "/etc/demo/config"), "greeting"), token, hex.EncodeToString(sum[:6]))
}

// slow answers after ?seconds=N.
func (a *app) slow(w http.ResponseWriter, r *http.Request) {
	seconds, err := strconv.ParseFloat(r.URL.Query().Get("seconds"), 64)
	if err != nil || seconds < 0 {
		http.Error(w, "seconds is not a number", http.StatusBadRequest)
		return
	}
	wait := min(time.Duration(seconds*float64(time.Second)), maxSlow)
	select {
	case <-r.Context().Done():
	case <-time.After(wait):
		fmt.Fprintf(w, "version=%s pod=%s slept=%s\n", a.version, a.hostname, wait)
	}
}

// echo sends back every WebSocket message until either side ends it.
func (a *app) echo(w http.ResponseWriter, r *http.Request) {
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := upgrader.Upgrade(w, r, http.Header{"X-Demo-Pod": {a.hostname}})
	if err != nil {
		return // Upgrade has answered.
	}
	a.sockets.Add(1)
	defer a.sockets.Done()
	defer conn.Close()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ended:
		case <-a.stopping:
			// The client answers with a close frame of its own, which ends the
			// loop below; one that does not is cut off.
			deadline := time.Now().Add(time.Second)
			_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseGoingAway, "stopping"), deadline)
			_ = conn.SetReadDeadline(deadline)
		}
	}()
	for {
		kind, message, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if err := conn.WriteMessage(kind, message); err != nil {
			return
		}
	}
}

// drain makes the application not ready.
func (a *app) drain() { a.draining.Store(true) }

// shutdown ends WebSockets, lets requests in flight finish and closes the
// server.
func (a *app) shutdown(ctx context.Context, server *http.Server) error {
	close(a.stopping)
	err := server.Shutdown(ctx)
	ended := make(chan struct{})
	go func() { a.sockets.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return err
}

// setting reads an environment variable, or else a file that Kubernetes keeps up
// to date.
func setting(name, dir, file string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
