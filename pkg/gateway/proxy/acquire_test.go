package proxy

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/13eedeaf/kcp/pkg/gateway/table"
)

// TestAcquireRacesSwap: who swaps in a table that drains a target and then reads zero in
// flight may rely on it, wherever between its steps a request was at the swap.
func TestAcquireRacesSwap(t *testing.T) {
	options := DefaultOptions()
	options.ProbeInterval = time.Hour
	p := Start(t.Context(), options, NewMetrics(prometheus.NewRegistry()))
	tables := make([]*table.Table, 2)
	for i, draining := range []bool{false, true} {
		tables[i], _ = table.Update(nil, map[table.NamespaceKey]*table.Namespace{{Cluster: "c", Namespace: "n"}: {
			NamespaceKey: table.NamespaceKey{Cluster: "c", Namespace: "n"},
			Targets:      []table.Target{{Key: "old", Draining: draining}, {Key: "new"}},
			Backends: []table.Backend{{Endpoints: []table.Endpoint{
				{Target: "old", Address: "127.0.0.1:1", State: table.Ready},
				{Target: "new", Address: "127.0.0.1:2", State: table.Ready},
			}}},
			Ingresses: []table.Ingress{{Hosts: []table.HostRules{{Paths: []table.PathRule{{Path: "/"}}}}}},
		}}, time.UnixMilli(int64(i)))
	}
	var drained, stop atomic.Bool
	var late, acquired atomic.Int64
	old := func() *target {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.targets[targetKey{nsKey{Cluster: "c", Namespace: "n"}, "old"}]
	}
	p.Swap(tables[0])
	counter := old()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for !stop.Load() {
				f := &flow{}
				if err := p.acquire(f, "h", "/", nil); err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				if f.held.target == counter && drained.Load() {
					late.Add(1)
				}
				acquired.Add(1)
				p.release(f)
			}
		})
	}
	for began := time.Now(); time.Since(began) < time.Second; {
		p.Swap(tables[1])
		for counter.inFlight.Load() != 0 {
			continue
		}
		drained.Store(true)
		for n := acquired.Load() + 20; acquired.Load() < n; {
			continue
		}
		drained.Store(false)
		p.Swap(tables[0])
		for n := acquired.Load() + 20; acquired.Load() < n; {
			continue
		}
	}
	stop.Store(true)
	group.Wait()
	if old() != counter {
		t.Error("the counter was replaced while it was in use")
	}
	if n := late.Load(); n > 0 {
		t.Errorf("%d of %d requests were sent to a target that was known to be drained", n, acquired.Load())
	}
}
