package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// parallel is how many tenants are created at once.
const parallel = 16

// readiness tells when things became ready, from one watch.
type readiness struct {
	mu     sync.Mutex
	at     map[string]time.Time
	waiter map[string]chan struct{}
	failed <-chan error
	stop   context.CancelFunc
}

// watchReadiness opens a watch; ready returns what an object makes ready, if anything.
func watchReadiness(ctx context.Context, c *client, path string, ready func(object) (string, bool)) (*readiness, error) {
	var l list
	if err := c.get(ctx, path+"?limit=1", &l); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &readiness{at: map[string]time.Time{}, waiter: map[string]chan struct{}{}, stop: cancel}
	var err error
	r.failed, err = c.watch(ctx, path+"?watch=true&resourceVersion="+l.Metadata.ResourceVersion, func(e event) {
		if key, ok := ready(e.Object); ok && e.Type != "DELETED" {
			r.mark(key)
		}
	})
	if err != nil {
		cancel()
		return nil, err
	}
	return r, nil
}

func (r *readiness) mark(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.at[key]; ok {
		return
	}
	r.at[key] = time.Now()
	if ch, ok := r.waiter[key]; ok {
		close(ch)
	}
}

// wait returns when key became ready.
func (r *readiness) wait(ctx context.Context, key string) (time.Time, error) {
	r.mu.Lock()
	if at, ok := r.at[key]; ok {
		r.mu.Unlock()
		return at, nil
	}
	ch, ok := r.waiter[key]
	if !ok {
		ch = make(chan struct{})
		r.waiter[key] = ch
	}
	r.mu.Unlock()
	select {
	case <-ch:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.at[key], nil
	case err := <-r.failed:
		return time.Time{}, err
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("waiting for %s: %w", key, ctx.Err())
	}
}

// inParallel calls f for 0 to n-1, in that order, some at once, until one fails.
func inParallel(ctx context.Context, workers, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	go func() {
		defer close(next)
		for i := range n {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	var group sync.WaitGroup
	for range min(workers, n) {
		group.Go(func() {
			for i := range next {
				if err := f(ctx, i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// creation is what it took to create a number of tenants.
type creation struct {
	count int
	// wall is until the last was ready, the CPU seconds and writes until the server was idle.
	wall time.Duration
	cpu  float64
	// writes are etcd transactions.
	writes int64
	ready  []time.Duration
}

func (c creation) rate() Measure {
	return Measure{Value: float64(c.count) / c.wall.Seconds(), N: c.count, CPUSeconds: c.cpu}
}

func (c creation) latency() Measure { return latencies(c.ready) }

func (c creation) cpuEach() Measure {
	return Measure{Value: 1000 * c.cpu / float64(c.count), N: c.count, CPUSeconds: c.cpu}
}

func (c creation) writesEach() Measure {
	return Measure{Value: float64(c.writes) / float64(c.count), N: c.count}
}

// createTenants creates count tenants and waits until they are ready and the server is
// idle. create returns the key by which r knows tenant i.
func createTenants(ctx context.Context, s *apiServer, r *readiness, count int, create func(ctx context.Context, i int) (string, error)) (creation, error) {
	c := creation{count: count, ready: make([]time.Duration, count)}
	before, err := s.revision(ctx)
	if err != nil {
		return c, err
	}
	c.cpu, err = s.cpuOf(func() error {
		begin := time.Now()
		err := inParallel(ctx, parallel, count, func(ctx context.Context, i int) error {
			asked := time.Now()
			key, err := create(ctx, i)
			if err != nil {
				return err
			}
			at, err := r.wait(ctx, key)
			c.ready[i] = at.Sub(asked)
			return err
		})
		c.wall = time.Since(begin)
		return errors.Join(err, s.idle(ctx))
	})
	if err != nil {
		return c, err
	}
	after, err := s.revision(ctx)
	c.writes = after - before
	// What the wait for idleness has found written meanwhile is part of it.
	return c, err
}

// watchWorkspaces tells when a workspace is ready, by its path.
func watchWorkspaces(ctx context.Context, s *apiServer) (*readiness, error) {
	return watchReadiness(ctx, s.admin, workspacesPath("*"), func(o object) (string, bool) {
		return o.Metadata.Annotations["kcp.io/path"], o.Status.Phase == "Ready"
	})
}

// watchNamespaces tells when a stock namespace is usable: it has its service account.
func watchNamespaces(ctx context.Context, s *apiServer) (*readiness, error) {
	return watchReadiness(ctx, s.admin, "/api/v1/serviceaccounts", func(o object) (string, bool) {
		return o.Metadata.Namespace, o.Metadata.Name == "default"
	})
}

// createFlat creates the workspaces from to to-1 below one parent.
func createFlat(ctx context.Context, s *apiServer, from, to int) (creation, error) {
	r, err := watchWorkspaces(ctx, s)
	if err != nil {
		return creation{}, err
	}
	defer r.stop()
	return createTenants(ctx, s, r, to-from, func(ctx context.Context, i int) (string, error) {
		name := workspaceName(from + i)
		return "root:" + tenantsParent + ":" + name, s.tenant.create(ctx, workspacesPath("root:"+tenantsParent), workspace(name))
	})
}

// treeFanOut is how many children each workspace of a tree has.
const treeFanOut = 8

// createTree creates count workspaces in a tree below root:<name>, parents first.
func createTree(ctx context.Context, s *apiServer, name string, count int) (creation, error) {
	if err := s.createWorkspace(ctx, "root", name); err != nil {
		return creation{}, err
	}
	r, err := watchWorkspaces(ctx, s)
	if err != nil {
		return creation{}, err
	}
	defer r.stop()
	r.mark("root:" + name)
	paths := make([]string, count)
	for i := range paths {
		parent := "root:" + name
		if i >= treeFanOut {
			parent = paths[i/treeFanOut-1]
		}
		paths[i] = parent + ":" + workspaceName(i)
	}
	return createTenants(ctx, s, r, count, func(ctx context.Context, i int) (string, error) {
		parent := strings.TrimSuffix(paths[i], ":"+workspaceName(i))
		if _, err := r.wait(ctx, parent); err != nil {
			return "", err
		}
		return paths[i], s.tenant.create(ctx, workspacesPath(parent), workspace(workspaceName(i)))
	})
}

// createNamespaces creates the stock server's tenants from to to-1.
func createNamespaces(ctx context.Context, s *apiServer, from, to int) (creation, error) {
	r, err := watchNamespaces(ctx, s)
	if err != nil {
		return creation{}, err
	}
	defer r.stop()
	return createTenants(ctx, s, r, to-from, func(ctx context.Context, i int) (string, error) {
		name := workspaceName(from + i)
		return name, s.tenant.create(ctx, "/api/v1/namespaces", manifest{"apiVersion": "v1", "kind": "Namespace", "metadata": named(name)})
	})
}
