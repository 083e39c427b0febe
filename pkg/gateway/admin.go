package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"

	"github.com/13eedeaf/kcp/pkg/gateway/proxy"
	"github.com/13eedeaf/kcp/pkg/gateway/table"
)

// serveAdmin serves health, metrics and the table until ctx ends.
func (g *Gateway) serveAdmin(ctx context.Context) {
	server := &http.Server{Handler: g.adminHandler(), ReadHeaderTimeout: headTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // nothing is lost
	defer stop()
	if err := server.Serve(g.admin); !errors.Is(err, http.ErrServerClosed) {
		klog.FromContext(ctx).Error(err, "Cannot serve health and metrics")
	}
}

func (g *Gateway) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !g.serving.Load() {
			answer(w, http.StatusServiceUnavailable, "no routing table, or shutting down")
			return
		}
		answer(w, http.StatusOK, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(g.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /table", g.serveTable)
	return mux
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body + "\n")) // the client may be gone
}

// serveTable shows the table in force, the health of its endpoints, and each namespace's
// state as reports tell it.
func (g *Gateway) serveTable(w http.ResponseWriter, r *http.Request) {
	type state struct {
		table.NamespaceKey
		proxy.Status
	}
	p := g.proxy.Load()
	if p == nil || p.Table() == nil {
		answer(w, http.StatusServiceUnavailable, "no routing table")
		return
	}
	out := struct {
		Table  *table.Table      `json:"table"`
		Health map[string]string `json:"health"`
		State  []state           `json:"state"`
	}{Table: p.Table(), Health: p.EndpointHealth()}
	for key := range out.Table.Namespaces {
		if status, ok := p.Status(key); ok {
			out.State = append(out.State, state{key, status})
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(out); err != nil {
		klog.FromContext(r.Context()).V(2).Info("Cannot send the table", "err", err)
	}
}

// newStreamMetrics tells whether the gateway hears from the server.
func newStreamMetrics(s *streams) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kcp_gateway_streams_missing",
		Help: "Streams of the server that the gateway should follow and does not.",
	}, func() float64 {
		following, all := s.count()
		return float64(all - following)
	})
}
