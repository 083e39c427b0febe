package proxy

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/13eedeaf/kcp/pkg/gateway/table"
)

// Metrics are the data plane's. Their number does not depend on that of tenants.
type Metrics struct {
	requests                          *prometheus.CounterVec
	seconds                           prometheus.Histogram
	retries, ejections, probeFailures prometheus.Counter
	revision, namespaces, endpoints   prometheus.Gauge

	// byStatus are those counters of requests that were needed so far.
	byStatus [600]atomic.Pointer[prometheus.Counter]
}

// NewMetrics returns metrics registered with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "kcp_gateway_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "kcp_gateway_" + name, Help: help})
	}
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kcp_gateway_requests_total", Help: "Requests by status code; 499 where the client left.",
		}, []string{"code"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kcp_gateway_request_duration_seconds", Help: "Time from a request's head to its end.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}),
		retries:       counter("retries_total", "Attempts repeated on another endpoint."),
		ejections:     counter("ejections_total", "Endpoints taken out because no connection could be made."),
		probeFailures: counter("probe_failures_total", "Probes that were not answered."),
		revision:      gauge("table_revision", "Revision of the routing table in force."),
		namespaces:    gauge("table_namespaces", "Namespaces in the routing table."),
		endpoints:     gauge("table_endpoints", "Distinct endpoints in the routing table."),
	}
	r.MustRegister(m.requests, m.seconds, m.retries, m.ejections, m.probeFailures, m.revision, m.namespaces, m.endpoints)
	return m
}

func (m *Metrics) request(status int, took time.Duration) {
	if status < 0 || status >= len(m.byStatus) {
		status = 0
	}
	counter := m.byStatus[status].Load()
	if counter == nil {
		code := strconv.Itoa(status)
		if http.StatusText(status) == "" && status != statusClientGone {
			// Applications can answer with any number.
			code = "other"
		}
		found := m.requests.WithLabelValues(code)
		counter = &found
		m.byStatus[status].Store(counter)
	}
	(*counter).Inc()
	m.seconds.Observe(took.Seconds())
}

func (m *Metrics) table(t *table.Table, endpoints int) {
	m.revision.Set(float64(t.Revision))
	m.namespaces.Set(float64(len(t.Namespaces)))
	m.endpoints.Set(float64(endpoints))
}
