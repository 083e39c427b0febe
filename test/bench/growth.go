package bench

import (
	"context"
	"fmt"
	"slices"
)

// grown is the pair of servers that grow together.
type grown struct {
	*Env
	kcp, stock *apiServer
	// workspaces and namespaces are how many tenants each has.
	workspaces, namespaces int
	// empty is what the product's server took before the first workspace.
	empty usage
	// asked is how many metric series it had with the first workspaces, once it had been
	// asked what it is asked at every size; 0 before.
	asked, askedAt int
	// prepared are the tenants that have what requests ask for, on both sides.
	prepared map[string]bool
}

// growth measures everything that may depend on the number of workspaces, at growing
// numbers of them on one pair of servers.
func growth(ctx context.Context, e *Env) (err error) {
	g := &grown{Env: e, prepared: map[string]bool{}}
	if g.kcp, err = e.startKCP(ctx, "kcp"); err != nil {
		return err
	}
	defer func() { e.clear(g.kcp) }()
	if e.wants("P1") || e.wants("P3") || e.wants("P5") || e.wants("P11") {
		if g.stock, err = e.startStock(ctx, "stock"); err != nil {
			return err
		}
		defer func() { e.clear(g.stock) }()
	}
	if e.wants("P11") {
		if err := g.restarts(ctx); err != nil {
			return err
		}
	}
	if err := g.kcp.idle(ctx); err != nil {
		return err
	}
	if g.empty, err = g.kcp.usage(ctx); err != nil {
		return err
	}
	for _, size := range steps(e.Scale.Workspaces) {
		if err := g.step(ctx, size); err != nil {
			return fmt.Errorf("at %d workspaces: %w", size, err)
		}
	}
	return g.full(ctx)
}

// steps are the powers of ten up to limit, and limit.
func steps(limit int) []int {
	var out []int
	for n := 1; n < limit; n *= 10 {
		out = append(out, n)
	}
	return append(out, limit)
}

// step grows both servers to a number of tenants and measures there.
func (g *grown) step(ctx context.Context, size int) error {
	if err := g.grow(ctx, size); err != nil {
		return err
	}
	if g.wants("P2") {
		if err := g.memory(ctx); err != nil {
			return err
		}
	}
	if g.wants("P3") {
		if err := g.requests(ctx); err != nil {
			return err
		}
	}
	if g.asked == 0 {
		g.askedAt = size
		var err error
		g.asked, _, err = g.kcp.metrics(ctx, "")
		return err
	}
	return nil
}

func (g *grown) grow(ctx context.Context, size int) error {
	g.say("creating workspaces up to %d", size)
	ours, err := createFlat(ctx, g.kcp, g.workspaces, size)
	if err != nil {
		return err
	}
	g.workspaces = size
	g.say("%.1f/s, %.2f ms CPU and %.2f etcd transactions each", ours.rate().Value, ours.cpuEach().Value, ours.writesEach().Value)
	var theirs *creation
	if to := min(size, g.Scale.Namespaces); g.stock != nil && to > g.namespaces {
		g.say("creating namespaces up to %d", to)
		c, err := createNamespaces(ctx, g.stock, g.namespaces, to)
		if err != nil {
			return err
		}
		theirs, g.namespaces = &c, to
	}
	return g.reportCreation("flat", size, ours, theirs)
}

func (g *grown) reportCreation(shape string, size int, ours creation, theirs *creation) error {
	figures := []struct {
		Figure
		of func(creation) Measure
	}{
		{Figure{Name: "create." + shape, Unit: "workspaces/s", Measure: ours.rate()}.atLeast(150), creation.rate},
		{Figure{Name: "create." + shape + ".ready", Unit: "ms", Measure: ours.latency()}, creation.latency},
		{Figure{Name: "create." + shape + ".cpu", Unit: "ms CPU each", Measure: ours.cpuEach()}.atMost(10), creation.cpuEach},
		{Figure{Name: "create." + shape + ".etcd", Unit: "etcd transactions each", Measure: ours.writesEach()}.atMost(5), creation.writesEach},
	}
	for _, f := range figures {
		f.Figure.Figure, f.Size = "P1", size
		if theirs != nil {
			f.Figure = f.against(f.of(*theirs))
		}
		if err := g.report(f.Figure); err != nil {
			return err
		}
	}
	return nil
}

// full measures what needs all workspaces there are.
func (g *grown) full(ctx context.Context) error {
	if err := g.profile(ctx, "heap-full"); err != nil {
		return err
	}
	for _, m := range []struct {
		figure string
		f      func(context.Context) error
	}{
		{"P1", g.tree}, {"P5", g.watchers}, {"P11", g.restarts}, {"P4", g.deletion},
	} {
		if !g.wants(m.figure) {
			continue
		}
		if err := m.f(ctx); err != nil {
			return fmt.Errorf("%s at %d workspaces: %w", m.figure, g.workspaces, err)
		}
	}
	return nil
}

func (g *grown) tree(ctx context.Context) error {
	g.say("creating %d workspaces in a tree", g.Scale.Tree)
	before, err := g.kcp.revision(ctx)
	if err != nil {
		return err
	}
	c, err := createTree(ctx, g.kcp, "tree", g.Scale.Tree)
	if err != nil {
		return err
	}
	writes, err := g.kcp.writes(ctx, before)
	if err != nil {
		return err
	}
	g.say("keys written: %s", describe(writes))
	return g.reportCreation("tree", g.Scale.Tree, c, nil)
}

// describe shows counts, the largest first.
func describe(counts map[string]int) string {
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return counts[b] - counts[a] })
	out := ""
	for _, name := range names {
		out += fmt.Sprintf("%s %d, ", name, counts[name])
	}
	return out
}
