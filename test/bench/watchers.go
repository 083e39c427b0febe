package bench

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// watchers compares what updates in one workspace cost with one watcher and with one in
// each workspace.
func (g *grown) watchers(ctx context.Context) error {
	ours, err := g.watched(ctx, g.kcp, g.workspaces)
	if err != nil {
		return err
	}
	theirs, err := g.watched(ctx, g.stock, g.namespaces)
	if err != nil {
		return err
	}
	growth := func(w watched) Measure { return Measure{Value: w.all.Value / w.one.Value, N: w.all.N} }
	for _, f := range []Figure{
		Figure{Name: "update.watchers.growth", Unit: "× one watcher", Measure: growth(ours)}.against(growth(theirs)).atMost(1.2),
		Figure{Name: "update.watchers.one", Unit: "ms CPU each", Measure: ours.one}.against(theirs.one),
		Figure{Name: "update.watchers.all", Unit: "ms CPU each", Measure: ours.all}.against(theirs.all),
		Figure{Name: "watcher.rss", Unit: "KiB each", Measure: ours.memory}.against(theirs.memory),
		Figure{Name: "watchers.idle", Unit: "cores", Measure: ours.idle}.against(theirs.idle),
	} {
		f.Figure, f.Size = "P5", g.workspaces
		if g.namespaces != g.workspaces {
			f.Note = fmt.Sprintf("the baseline has %d watchers in as many namespaces", g.namespaces)
		}
		if err := g.report(f); err != nil {
			return err
		}
	}
	return nil
}

type watched struct{ one, all, memory, idle Measure }

func (g *grown) watched(ctx context.Context, s *apiServer, tenants int) (watched, error) {
	var w watched
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	if err := s.tenant.create(ctx, s.configMaps(0, ""), configMap("watched")); err != nil {
		return w, err
	}
	// The first watcher says when an update has arrived.
	arrived := make(chan struct{}, 1)
	if err := openWatch(ctx, s, 0, &group, func() { arrived <- struct{}{} }); err != nil {
		return w, err
	}
	if err := s.idle(ctx); err != nil {
		return w, err
	}
	var err error
	// Once to warm up.
	for range 2 {
		if w.one, err = g.updates(ctx, s, arrived); err != nil {
			return w, err
		}
	}
	before, err := s.rss()
	if err != nil {
		return w, err
	}
	g.say("opening %d watches at %s", tenants, s.name)
	if err := inParallel(ctx, parallel, tenants-1, func(ctx context.Context, i int) error {
		return openWatch(ctx, s, i+1, &group, func() {})
	}); err != nil {
		return w, err
	}
	if err := s.idle(ctx); err != nil {
		return w, err
	}
	after, err := s.rss()
	if err != nil {
		return w, err
	}
	w.memory = Measure{Value: max(0, after-before) / 1024 / float64(max(1, tenants-1)), N: tenants - 1}
	if w.all, err = g.updates(ctx, s, arrived); err != nil {
		return w, err
	}
	w.idle, err = g.idleCPU(ctx, s.process)
	return w, err
}

// idleCPU measures how many cores a process uses when nothing is asked of it.
func (e *Env) idleCPU(ctx context.Context, p *process) (Measure, error) {
	used, err := p.cpuOf(func() error {
		select {
		case <-time.After(time.Duration(e.Scale.IdleSeconds) * time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return Measure{Value: used / float64(e.Scale.IdleSeconds), N: 1, CPUSeconds: used}, err
}

// updates sends updates one after the other, each until the watcher has it.
func (g *grown) updates(ctx context.Context, s *apiServer, arrived <-chan struct{}) (Measure, error) {
	path := s.configMaps(0, "") + "/watched"
	var samples []time.Duration
	used, err := s.cpuOf(func() error {
		for i := range g.Scale.Updates {
			took, err := timed(func() error {
				patch := manifest{"data": manifest{"n": fmt.Sprint(i, time.Now().UnixNano())}}
				if err := s.tenant.mergePatch(ctx, path, patch); err != nil {
					return err
				}
				select {
				case <-arrived:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			if err != nil {
				return err
			}
			samples = append(samples, took)
		}
		return nil
	})
	m := latencies(samples)
	m.Value, m.CPUSeconds = 1000*used/float64(len(samples)), used
	return m, err
}

// openWatch watches the ConfigMaps of a tenant from now on, and calls f for each event.
func openWatch(ctx context.Context, s *apiServer, tenant int, group *sync.WaitGroup, f func()) error {
	path := s.configMaps(tenant, "")
	var l list
	if err := s.tenant.get(ctx, path+"?limit=1", &l); err != nil {
		return err
	}
	resp, err := s.tenant.send(ctx, http.MethodGet, path+"?watch=true&resourceVersion="+l.Metadata.ResourceVersion, "", nil)
	if err != nil {
		return err
	}
	group.Go(func() {
		defer resp.Body.Close()
		// A line per event; what it says does not matter here.
		lines := bufio.NewReaderSize(resp.Body, 512)
		for {
			_, err := lines.ReadSlice('\n')
			switch {
			case err == nil:
				f()
			case err != bufio.ErrBufferFull: //nolint:errorlint // returned as it is
				return
			}
		}
	})
	return nil
}
