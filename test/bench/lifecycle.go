package bench

import (
	"context"
	"fmt"
	"net/http"
	"time"
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
	if err := g.kcp.idle(ctx); err != nil {
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
