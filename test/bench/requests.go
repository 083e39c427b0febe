package bench

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	// sampled is over how many tenants requests are spread.
	sampled = 20
	// listLength is how many objects a LIST returns.
	listLength = 100
	// rounds is how often the two servers are asked in turn.
	rounds = 20
)

// requests compares GET, CREATE and LIST of ConfigMaps between the servers.
func (g *grown) requests(ctx context.Context) error {
	g.say("comparing requests at %d workspaces and %d namespaces", g.workspaces, g.namespaces)
	sides := []*side{{apiServer: g.kcp, tenants: spread(g.workspaces)}, {apiServer: g.stock, tenants: spread(g.namespaces)}}
	for _, s := range sides {
		if err := s.prepare(ctx, g.prepared); err != nil {
			return err
		}
	}
	for _, op := range []struct {
		name  string
		count int
		do    func(*side, context.Context, int) error
	}{
		{"get", g.Scale.Requests, (*side).get},
		{"create", g.Scale.Requests / 2, (*side).createOne},
		{"list", g.Scale.Requests / 5, (*side).list},
	} {
		if err := inTurn(ctx, sides, op.count, op.do); err != nil {
			return fmt.Errorf("%s: %w", op.name, err)
		}
		if err := g.reportRequests(op.name, sides); err != nil {
			return err
		}
	}
	return nil
}

func (g *grown) reportRequests(op string, sides []*side) error {
	ours, theirs := sides[0].take(), sides[1].take()
	p99 := func(m Measure) Measure { m.Value, m.CPUSeconds = m.P99, 0; return m }
	cpu := func(m Measure) Measure {
		return Measure{Value: 1000 * m.CPUSeconds / float64(m.N), N: m.N, CPUSeconds: m.CPUSeconds}
	}
	for _, f := range []Figure{
		Figure{Name: op, Unit: "ms", Measure: ours}.against(theirs).ratioAtMost(1.10),
		Figure{Name: op + ".p99", Unit: "ms", Measure: p99(ours)}.against(p99(theirs)).ratioAtMost(1.25),
		Figure{Name: op + ".cpu", Unit: "ms CPU each", Measure: cpu(ours)}.against(cpu(theirs)),
	} {
		f.Figure, f.Size = "P3", g.workspaces
		if err := g.report(f); err != nil {
			return err
		}
	}
	return nil
}

// spread returns some of n tenants.
func spread(n int) []int {
	k := min(sampled, n)
	out := make([]int, k)
	for i := range out {
		out[i] = i * n / k
	}
	return out
}

// side is one of the servers that are compared.
type side struct {
	*apiServer
	tenants []int
	samples []time.Duration
	cpuUsed float64
	created int
}

// made is the namespace in which CREATE is measured, so that LIST stays as long as it is.
const made = "made"

// prepare makes what is read: a ConfigMap in each tenant, and listLength of them in the
// first, which is listed.
func (s *side) prepare(ctx context.Context, prepared map[string]bool) error {
	for n, tenant := range s.tenants {
		path, name := s.namespace(tenant, made)
		key := s.name + path + name
		if prepared[key] {
			continue
		}
		prepared[key] = true
		namespace := manifest{"apiVersion": "v1", "kind": "Namespace", "metadata": named(name)}
		if err := s.tenant.create(ctx, path, namespace); err != nil {
			return err
		}
		count := 1
		if n == 0 {
			count = listLength
		}
		if err := inParallel(ctx, 4, count, func(ctx context.Context, i int) error {
			return s.tenant.create(ctx, s.configMaps(tenant, ""), configMap(fmt.Sprintf("c%d", i)))
		}); err != nil {
			return err
		}
	}
	return s.idle(ctx)
}

func (s *side) get(ctx context.Context, i int) error {
	_, err := s.tenant.raw(ctx, http.MethodGet, s.configMaps(s.tenants[i%len(s.tenants)], "")+"/c0", "", nil)
	return err
}

func (s *side) createOne(ctx context.Context, i int) error {
	s.created++
	name := fmt.Sprintf("c%d-%d", time.Now().UnixNano(), s.created)
	return s.tenant.create(ctx, s.configMaps(s.tenants[i%len(s.tenants)], made), configMap(name))
}

func (s *side) list(ctx context.Context, _ int) error {
	_, err := s.tenant.raw(ctx, http.MethodGet, s.configMaps(s.tenants[0], ""), "", nil)
	return err
}

// take returns what was sampled and forgets it.
func (s *side) take() Measure {
	m := latencies(s.samples)
	m.CPUSeconds = s.cpuUsed
	s.samples, s.cpuUsed = nil, 0
	return m
}

// inTurn asks the sides in alternating order, so that what disturbs the machine disturbs
// both.
func inTurn(ctx context.Context, sides []*side, count int, do func(*side, context.Context, int) error) error {
	perRound := max(1, count/rounds)
	for round := range min(rounds, count) {
		for n := range sides {
			s := sides[(n+round)%len(sides)]
			used, err := s.cpuOf(func() error {
				for i := range perRound {
					took, err := timed(func() error { return do(s, ctx, round*perRound+i) })
					if err != nil {
						return err
					}
					s.samples = append(s.samples, took)
				}
				return nil
			})
			if err != nil {
				return err
			}
			s.cpuUsed += used
		}
	}
	return nil
}
