package bench

import (
	"context"
	"fmt"
	"net/http"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// restarts measures how long the servers take to start with what they have.
func (g *grown) restarts(ctx context.Context) error {
	g.say("starting servers with %d workspaces", g.workspaces)
	sides := []*apiServer{g.kcp, g.stock}
	samples := map[*apiServer][]time.Duration{}
	cpu := map[*apiServer]float64{}
	for range g.Scale.Starts {
		for _, s := range sides {
			s.stop()
			took, err := s.run(ctx)
			if err != nil {
				return err
			}
			used, err := s.cpu()
			if err != nil {
				return err
			}
			samples[s] = append(samples[s], took)
			cpu[s] += used.Seconds() / float64(g.Scale.Starts)
		}
	}
	measure := func(s *apiServer) Measure {
		m := latencies(samples[s])
		m.Value, m.P50, m.P99, m.CPUSeconds = m.Value/1000, m.P50/1000, m.P99/1000, cpu[s]
		return m
	}
	f := Figure{Figure: "P11", Name: "start", Unit: "s", Size: g.workspaces, Measure: measure(g.kcp)}.against(measure(g.stock))
	if f = f.atMost(3); g.workspaces > 0 {
		f = f.atMost(6)
	}
	f.Note = fmt.Sprintf("the baseline has %d namespaces; its controllers start after it is ready, ours before", g.namespaces)
	if err := g.report(f); err != nil || g.workspaces == 0 {
		return err
	}
	return g.settled(ctx)
}

// settled reports the heap of a server that has just started, whose caches hold what is
// there and no history of how it came about.
func (g *grown) settled(ctx context.Context) error {
	if err := g.kcp.idle(ctx); err != nil {
		return err
	}
	heap, err := g.kcp.heap(ctx)
	if err != nil {
		return err
	}
	each := Measure{Value: (heap - g.empty.heap) / float64(g.workspaces) / 1024, N: g.workspaces}
	f := Figure{Figure: "P2", Name: "memory.heap.restarted", Unit: "KiB each", Size: g.workspaces, Measure: each}
	return g.report(f.atMost(32))
}

// deletion deletes all workspaces by their parent.
func (g *grown) deletion(ctx context.Context) error {
	g.say("deleting %d workspaces", g.workspaces)
	parent := workspacesPath("root") + "/" + tenantsParent
	var took time.Duration
	used, err := g.kcp.cpuOf(func() error {
		var err error
		took, err = timed(func() error {
			if err := g.kcp.tenant.delete(ctx, parent); err != nil {
				return err
			}
			return eventually(ctx, "the workspaces are gone", 5*pollInterval, func(ctx context.Context) (bool, error) {
				err := g.kcp.tenant.get(ctx, parent, nil)
				return isStatus(err, http.StatusNotFound), err
			})
		})
		return err
	})
	if err != nil {
		return err
	}
	if err := g.rest(ctx); err != nil {
		return err
	}
	now, err := g.kcp.usage(ctx)
	if err != nil {
		return err
	}
	if err := g.profile(ctx, "heap-deleted"); err != nil {
		return err
	}
	for _, f := range []Figure{
		Figure{Name: "delete.tree", Unit: "s", Measure: Measure{Value: took.Seconds(), N: g.workspaces, CPUSeconds: used}}.atMost(60),
		Figure{Name: "delete.heap", Unit: "× before", Measure: Measure{Value: now.heap / g.empty.heap, N: 1}}.atMost(1.1),
	} {
		f.Figure, f.Size = "P4", g.workspaces
		if err := g.report(f); err != nil {
			return err
		}
	}
	return nil
}

// restedCapacity is how many events watch caches at rest have room for; the least is 100.
const restedCapacity = 200

// rest waits until the server has let go of the history that it keeps for a while by
// design: etcd's, which upstream compacts after five minutes, and that of the watch
// caches, which goes after 75 seconds of quiet.
func (g *grown) rest(ctx context.Context) error {
	g.say("waiting until history is forgotten")
	if err := g.kcp.idle(ctx); err != nil {
		return err
	}
	// The caches need something to have been written since.
	resp, err := g.kcp.etcd.Put(ctx, "/bench/rest", "")
	if err != nil {
		return err
	}
	if _, err := g.kcp.etcd.Compact(ctx, resp.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	return eventually(ctx, "the watch caches have forgotten", 20*pollInterval, func(ctx context.Context) (bool, error) {
		capacity, err := g.kcp.largest(ctx, "watch_cache_capacity{")
		return capacity <= restedCapacity, err
	})
}
