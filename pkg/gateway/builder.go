package gateway

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/13eedeaf/kcp/pkg/gateway/proxy"
	"github.com/13eedeaf/kcp/pkg/gateway/table"
)

const (
	// holdTable is how long changes wait for a stream that was lost. It is well above the
	// informers' longest pause between attempts, so that after a restart of the server
	// all streams have had their chance.
	holdTable = 15 * time.Second
	// buildInterval bounds how often tables are made when changes come thick.
	buildInterval = 10 * time.Millisecond
	// saveInterval bounds how often they are written to disk.
	saveInterval = 500 * time.Millisecond
)

// builder makes tables and puts them in force.
type builder struct {
	inputs *inputs
	proxy  *proxy.Proxy
	// changed is told each namespace that a new table changed.
	changed func(table.NamespaceKey)
	// path is where tables are kept; empty for nowhere.
	path string

	table *table.Table
	// save holds the table to be written next.
	save chan *table.Table
}

// restore puts the table on disk in force, if there is one.
func (b *builder) restore(ctx context.Context) {
	if b.path == "" {
		return
	}
	logger := klog.FromContext(ctx)
	t, err := table.Load(b.path)
	if err != nil {
		logger.Error(err, "Starting without the last routing table")
		return
	}
	if t == nil {
		return
	}
	b.table = t
	b.proxy.Swap(t)
	logger.Info("Serving the last routing table until the server answers", "revision", t.Revision, "namespaces", len(t.Namespaces))
}

// run makes tables until ctx ends. It calls informed once, when the first table made from
// the server's state is in force.
func (b *builder) run(ctx context.Context, informed func()) {
	first := true
	for b.wait(ctx) {
		namespaces := b.inputs.build()
		if first && b.table != nil {
			// What only the disk knows is gone.
			for key := range b.table.Namespaces {
				if _, ok := namespaces[key]; !ok {
					namespaces[key] = nil
				}
			}
		}
		b.put(ctx, namespaces)
		if first {
			first = false
			informed()
		}
		select {
		case <-ctx.Done():
		case <-time.After(buildInterval):
		}
	}
}

// wait returns true when there is a reason and no obstacle to make a table.
func (b *builder) wait(ctx context.Context) bool {
	var hold <-chan time.Time
	held := false
	for {
		select {
		case <-ctx.Done():
			return false
		case <-b.inputs.changed:
		case <-hold:
			held = true
		}
		switch {
		case !b.inputs.synced():
		case held || b.inputs.streams.whole():
			return true
		case hold == nil && b.inputs.pending():
			hold = time.After(holdTable)
		}
	}
}

func (b *builder) put(ctx context.Context, namespaces map[table.NamespaceKey]*table.Namespace) {
	next, changed := table.Update(b.table, namespaces, time.Now())
	if next == b.table {
		return
	}
	b.table = next
	b.proxy.Swap(next)
	for _, key := range changed {
		b.changed(key)
	}
	klog.FromContext(ctx).V(2).Info("New routing table", "revision", next.Revision, "changed", len(changed), "namespaces", len(next.Namespaces))
	select {
	case <-b.save:
	default:
	}
	b.save <- next
}

// keep writes tables to disk until ctx ends, and then the last one.
func (b *builder) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			select {
			case t := <-b.save:
				b.write(ctx, t)
			default:
			}
			return
		case t := <-b.save:
			b.write(ctx, t)
		}
		select {
		case <-ctx.Done():
		case <-time.After(saveInterval):
		}
	}
}

func (b *builder) write(ctx context.Context, t *table.Table) {
	if b.path == "" {
		return
	}
	if err := t.Save(b.path); err != nil {
		klog.FromContext(ctx).Error(err, "A restart would begin with an older routing table")
	}
}
