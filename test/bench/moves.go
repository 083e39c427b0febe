package bench

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// moves counts the writes that moving a namespace takes.
func (f *fleet) moves(ctx context.Context) error {
	if err := f.addCluster(ctx, "us-west1"); err != nil {
		return err
	}
	for _, objects := range f.Scale.Moved {
		f.say("moving a namespace with %d objects", objects)
		if err := f.move(ctx, objects); err != nil {
			return fmt.Errorf("%d objects: %w", objects, err)
		}
	}
	return nil
}

func (f *fleet) move(ctx context.Context, objects int) error {
	namespace := fmt.Sprintf("moved-%d", objects)
	if err := f.createNamespace(ctx, namespace); err != nil {
		return err
	}
	if err := f.kcp.tenant.create(ctx, deployments(namespace), deployment("web")); err != nil {
		return err
	}
	configMaps := workspacePath(0) + "/api/v1/namespaces/" + namespace + "/configmaps"
	if err := inParallel(ctx, parallel, objects-1, func(ctx context.Context, i int) error {
		return f.kcp.tenant.create(ctx, configMaps, configMap(fmt.Sprintf("c%d", i)))
	}); err != nil {
		return err
	}
	from, err := f.serving(ctx, namespace, "")
	if err != nil {
		return err
	}
	source := f.clusters[0]
	if source.key != from {
		source = f.clusters[1]
	}
	if err := f.kcp.idle(ctx); err != nil {
		return err
	}
	before, err := f.kcp.revision(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	drain := manifest{"spec": manifest{"unschedulable": true, "evictAfter": begin.UTC().Format(time.RFC3339)}}
	if err := f.kcp.admin.mergePatch(ctx, f.target(source.name), drain); err != nil {
		return err
	}
	if _, err := f.serving(ctx, namespace, from); err != nil {
		return err
	}
	took := time.Since(begin)
	if err := f.kcp.idle(ctx); err != nil {
		return err
	}
	ordering, telling := map[string]int{}, map[string]int{}
	if err := f.kcp.events(ctx, before, func(e *clientv3.Event) {
		if resource := resourceOf(string(e.Kv.Key)); orders(e) {
			ordering[resource]++
		} else {
			telling[resource]++
		}
	}); err != nil {
		return err
	}
	f.say("keys written, other than statuses: %s", describe(ordering))
	f.say("statuses written: %s", describe(telling))
	sum := func(counts map[string]int, resources ...string) Measure {
		m := Measure{N: 1}
		for _, resource := range resources {
			m.Value += float64(counts[resource])
		}
		return m
	}
	for _, fig := range []Figure{
		{Name: "move.orders", Unit: "writes", Measure: sum(ordering, "assignments", "placements", "synctargets"), Target: "equal at every size",
			Note: "Assignments, Placements and SyncTargets, but for their statuses"},
		{Name: "move.progress", Unit: "writes", Measure: sum(telling, "assignments", "placements"),
			Note: "statuses of Assignments and Placements, in which people read how far it is"},
		{Name: "move.reports", Unit: "writes", Measure: Measure{Value: float64(ordering["syncreports"] + telling["syncreports"]), N: 1}},
		{Name: "move.time", Unit: "s", Measure: Measure{Value: took.Seconds(), N: 1}},
	} {
		fig.Figure, fig.Size = "P9", objects
		if err := f.report(fig); err != nil {
			return err
		}
	}
	undo := manifest{"spec": manifest{"unschedulable": false, "evictAfter": nil}}
	if err := f.kcp.admin.mergePatch(ctx, f.target(source.name), undo); err != nil {
		return err
	}
	return f.deleteNamespace(ctx, namespace)
}

// serving waits until the namespace has one Assignment that serves, at another target
// than one that is given, and returns its target.
func (f *fleet) serving(ctx context.Context, namespace, not string) (target string, err error) {
	path := workspacePath(0) + "/apis/scheduling.kcp.io/v1alpha1/namespaces/" + namespace + "/assignments"
	err = eventually(ctx, "namespace "+namespace+" is served", pollInterval, func(ctx context.Context) (bool, error) {
		var l list
		if err := f.kcp.tenant.get(ctx, path, &l); err != nil || len(l.Items) != 1 {
			return false, err
		}
		target = l.Items[0].Spec.Target
		return target != not && l.Items[0].Status.Phase == "Serving", nil
	})
	return target, err
}
