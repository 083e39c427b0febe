package bench

import (
	"context"
	"os"
	"path/filepath"
)

// usage is what a server takes.
type usage struct {
	heap, rss  float64
	goroutines float64
	series     int
}

func (s *apiServer) usage(ctx context.Context) (usage, error) {
	var u usage
	var err error
	if u.heap, err = s.heap(ctx); err != nil {
		return u, err
	}
	if u.rss, err = s.rss(); err != nil {
		return u, err
	}
	u.series, u.goroutines, err = s.metrics(ctx, "go_goroutines")
	return u, err
}

// memory reports what all workspaces together have added to the server, per workspace.
func (g *grown) memory(ctx context.Context) error {
	now, err := g.kcp.usage(ctx)
	if err != nil {
		return err
	}
	n := float64(g.workspaces)
	figures := []Figure{
		Figure{Name: "memory.heap", Unit: "KiB each", Measure: Measure{Value: (now.heap - g.empty.heap) / n / 1024, N: g.workspaces}}.atMost(32),
		{Name: "memory.heap.total", Unit: "MiB", Measure: Measure{Value: now.heap / (1 << 20), N: 1}},
		{Name: "memory.rss", Unit: "MiB", Measure: Measure{Value: now.rss / (1 << 20), N: 1}},
		{Name: "goroutines", Unit: "each", Measure: Measure{Value: (now.goroutines - g.empty.goroutines) / n, N: g.workspaces}, Target: "0"},
		{Name: "goroutines.total", Unit: "goroutines", Measure: Measure{Value: now.goroutines, N: 1}},
		{Name: "series.total", Unit: "series", Measure: Measure{Value: float64(now.series), N: 1}},
	}
	if more := g.workspaces - g.askedAt; g.asked > 0 && more > 0 {
		figures = append(figures, Figure{
			Name: "series", Unit: "each", Target: "0",
			Measure: Measure{Value: float64(now.series-g.asked) / float64(more), N: more},
		})
	}
	for _, f := range figures {
		f.Figure, f.Size = "P2", g.workspaces
		if err := g.report(f); err != nil {
			return err
		}
	}
	return nil
}

// profile keeps a heap profile of the server, if profiles are wanted.
func (g *grown) profile(ctx context.Context, name string) error {
	if g.Profiles == "" {
		return nil
	}
	data, err := g.kcp.admin.raw(ctx, "GET", "/debug/pprof/heap?gc=1", "", nil)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(g.Profiles, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(g.Profiles, name+".pprof"), data, 0o644)
}
