package bench

import (
	"context"
	"fmt"
	"time"
)

// manyObjects measures what a syncer takes that has much to look after.
func (f *fleet) manyObjects(ctx context.Context) error {
	const perNamespace = 10
	east, namespaces := f.clusters[0], f.Scale.SyncedNamespaces
	for _, other := range f.clusters[1:] {
		if err := f.kcp.admin.mergePatch(ctx, f.target(other.name), manifest{"spec": manifest{"unschedulable": true}}); err != nil {
			return err
		}
	}
	f.say("syncing %d namespaces of %d objects", namespaces, perNamespace)
	ctx2, cancel := context.WithCancel(ctx)
	defer cancel()
	arrived := make(chan struct{}, namespaces*perNamespace)
	var l list
	if err := east.admin.get(ctx, "/api/v1/configmaps?limit=1", &l); err != nil {
		return err
	}
	if _, err := east.admin.watch(ctx2, "/api/v1/configmaps?watch=true&labelSelector=workload.kcp.io/syncer&resourceVersion="+l.Metadata.ResourceVersion, func(e event) {
		if e.Type == "ADDED" {
			arrived <- struct{}{}
		}
	}); err != nil {
		return err
	}
	begin := time.Now()
	if err := inParallel(ctx, parallel, namespaces, func(ctx context.Context, i int) error { return f.fill(ctx, i, perNamespace) }); err != nil {
		return err
	}
	for range namespaces * (perNamespace - 1) {
		select {
		case <-arrived:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	took := time.Since(begin)
	if err := f.kcp.idle(ctx); err != nil {
		return err
	}
	before, err := east.syncer.cpu()
	if err != nil {
		return err
	}
	idle, err := f.idleCPU(ctx, east.syncer)
	if err != nil {
		return err
	}
	rss, err := east.syncer.rss()
	if err != nil {
		return err
	}
	anonymous, err := east.syncer.memory("RssAnon")
	if err != nil {
		return err
	}
	again, restarted, err := f.restart(ctx, east)
	if err != nil {
		return err
	}
	for _, fig := range []Figure{
		Figure{Name: "syncer.rss", Unit: "MiB", Measure: Measure{Value: rss / (1 << 20), N: 1}}.atMost(64),
		{Name: "syncer.rss.anon", Unit: "MiB", Measure: Measure{Value: anonymous / (1 << 20), N: 1}, Note: "the rest are pages of the binary, which the kernel can drop"},
		{Name: "syncer.idle", Unit: "cores", Measure: idle, Target: "≈ 0"},
		{Name: "syncer.rss.restarted", Unit: "MiB", Measure: Measure{Value: restarted / (1 << 20), N: 1}, Note: "the most that a syncer takes that is started when all is there"},
		{Name: "syncer.restarted", Unit: "s CPU", Measure: Measure{Value: again.Seconds(), N: 1, CPUSeconds: again.Seconds()}},
		{Name: "syncer.filled", Unit: "s", Measure: Measure{Value: took.Seconds(), N: namespaces, CPUSeconds: before.Seconds()}},
	} {
		fig.Figure, fig.Size = "P10", namespaces*perNamespace
		if err := f.report(fig); err != nil {
			return err
		}
	}
	return nil
}

// restart stops the syncer and starts it again, and returns what the new one takes until
// it has looked at everything: CPU time, and the most memory.
func (f *fleet) restart(ctx context.Context, c *cluster) (used time.Duration, memory float64, err error) {
	f.say("starting the syncer again")
	c.syncer.stop()
	if err := f.startSyncer(ctx, c); err != nil {
		return 0, 0, err
	}
	select {
	case <-c.syncer.seen:
	case <-c.syncer.done:
		return 0, 0, c.syncer.ended()
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	// What goes on for ever, as the sweep does, takes a hundredth of a core.
	const interval, quiet = 3 * time.Second, 100 * time.Millisecond
	err = eventually(ctx, "the syncer has looked at everything", interval, func(context.Context) (bool, error) {
		before := used
		used, err = c.syncer.cpu()
		return used-before < quiet, err
	})
	if err != nil {
		return 0, 0, err
	}
	memory, err = c.syncer.memory("VmHWM")
	return used, memory, err
}

// fill makes a namespace with a Service, which asks for a place, and ConfigMaps.
func (f *fleet) fill(ctx context.Context, i, objects int) error {
	name := fmt.Sprintf("filled-%d", i)
	if err := f.createNamespace(ctx, name); err != nil {
		return err
	}
	path := workspacePath(0) + "/api/v1/namespaces/" + name
	service := manifest{
		"apiVersion": "v1", "kind": "Service", "metadata": named("web"),
		"spec": manifest{"ports": []manifest{{"port": 80}}, "selector": manifest{"app": "web"}},
	}
	if err := f.kcp.tenant.create(ctx, path+"/services", service); err != nil {
		return err
	}
	for n := range objects - 1 {
		if err := f.kcp.tenant.create(ctx, path+"/configmaps", configMap(fmt.Sprintf("c%d", n))); err != nil {
			return err
		}
	}
	return nil
}
