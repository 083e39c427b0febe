// Package reconciler is the one control loop of the server.
//
// A Controller takes keys from handlers of informers, keeps each key at most once in
// its queue and never works on one key twice at the same time, and calls a Reconciler,
// which looks at what is, and brings it closer to what should be. A Reconciler keeps
// no state that it could not derive again, so that a missed event or a restart costs
// nothing but time.
//
// # Results
//
// Return an error to try again with growing delay; return RequeueAfter to be called
// again at a known time; return neither when only an event can change the outcome. A
// conflict (somebody wrote meanwhile) is an error like any other, but is not logged as
// one.
//
// # Cost
//
// A Controller has a fixed number of workers for all logical clusters; nothing here
// grows with their number but the queue.
package reconciler

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/steady"
)

// Reconciler brings what a key names closer to what it should be. It is called by
// several goroutines, for one key by one at a time.
type Reconciler[K comparable] interface {
	Reconcile(ctx context.Context, key K) (Result, error)
}

// Func is a function that is a Reconciler.
type Func[K comparable] func(ctx context.Context, key K) (Result, error)

// Reconcile calls f.
func (f Func[K]) Reconcile(ctx context.Context, key K) (Result, error) { return f(ctx, key) }

// Result says when to look again; zero means when an event asks for it.
type Result struct {
	RequeueAfter time.Duration
}

const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = time.Minute
	// clockInterval is how often the wall clock is compared with the one that cannot be set.
	clockInterval = time.Second
)

type options struct {
	workers int
	clock   clock.WithTicker
	synced  []func(context.Context) bool
	wall    *steady.Clock
}

// Option changes how a Controller works.
type Option func(*options)

// WithWorkers sets how many keys are worked on at once. Default: 2.
func WithWorkers(n int) Option { return func(o *options) { o.workers = n } }

// WithClock sets the clock by which delays are measured, for tests. It is not the wall
// clock, which may be set.
func WithClock(c clock.WithTicker) Option { return func(o *options) { o.clock = c } }

// WithSynced names what is waited for before the first Reconcile: functions like the
// WaitForSync of an informer, which return false when the context ends first.
func WithSynced(waits ...func(context.Context) bool) Option {
	return func(o *options) { o.synced = append(o.synced, waits...) }
}

// WithWallTimers is for a Reconciler whose RequeueAfter leads to an instant of the wall
// clock. A delay does not notice when that clock is set; so then every key that waits is
// looked at again.
func WithWallTimers(wall clock.PassiveClock) Option {
	return func(o *options) { o.wall = new(steady.New(wall)) }
}

// Controller calls a Reconciler for the keys that are given to it.
type Controller[K comparable] struct {
	name       string
	reconciler Reconciler[K]
	workers    int
	synced     []func(context.Context) bool
	queue      workqueue.TypedRateLimitingInterface[K]

	// wall is nil unless keys wait for instants of the wall clock. waiting has those that do.
	wall    *steady.Clock
	mu      sync.Mutex
	waiting map[K]struct{}
}

// New returns a controller; Run starts it. The name, a constant, is in its logs and
// metrics.
func New[K comparable](name string, r Reconciler[K], opts ...Option) *Controller[K] {
	o := options{workers: 2, clock: clock.RealClock{}}
	for _, opt := range opts {
		opt(&o)
	}
	return &Controller[K]{
		name:       name,
		reconciler: r,
		workers:    o.workers,
		synced:     o.synced,
		wall:       o.wall,
		waiting:    map[K]struct{}{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[K](minBackoff, maxBackoff),
			workqueue.TypedRateLimitingQueueConfig[K]{Name: name, Clock: o.clock},
		),
	}
}

// Enqueue asks for key to be reconciled soon. It never blocks.
func (c *Controller[K]) Enqueue(key K) { c.queue.Add(key) }

// EnqueueAfter asks for key to be reconciled once d has passed.
func (c *Controller[K]) EnqueueAfter(key K, d time.Duration) { c.queue.AddAfter(key, d) }

// WaitForSync blocks until all that WithSynced named is there, or until ctx ends; it
// reports which.
func (c *Controller[K]) WaitForSync(ctx context.Context) bool {
	for _, wait := range c.synced {
		if !wait(ctx) {
			return false
		}
	}
	return true
}

// Run works until ctx ends, and returns when every Reconcile that was begun has
// returned.
func (c *Controller[K]) Run(ctx context.Context) {
	if !c.WaitForSync(ctx) {
		c.queue.ShutDown()
		return
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("controller", c.name))
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()

	var wg sync.WaitGroup
	if c.wall != nil {
		wg.Go(func() { c.watchClock(ctx) })
	}
	for range c.workers {
		wg.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	wg.Wait()
}

// next works on one key; false when the queue has shut down.
func (c *Controller[K]) next(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if ctx.Err() != nil {
		return true
	}

	ctx = klog.NewContext(ctx, withKey(klog.FromContext(ctx), key))
	result, err := c.reconcile(ctx, key)
	c.waits(key, err == nil && result.RequeueAfter > 0)
	switch {
	case err != nil && ctx.Err() != nil:
		// The server is stopping; the next start looks again.
	case apierrors.IsConflict(err):
		klog.FromContext(ctx).V(4).Info("Written by somebody else meanwhile, trying again", "err", err)
		c.queue.AddRateLimited(key)
	case err != nil:
		klog.FromContext(ctx).Error(err, "Cannot reconcile, trying again")
		c.queue.AddRateLimited(key)
	case result.RequeueAfter > 0:
		c.queue.Forget(key)
		c.queue.AddAfter(key, result.RequeueAfter)
	default:
		c.queue.Forget(key)
	}
	return true
}

// waits notes whether a key waits for an instant.
func (c *Controller[K]) waits(key K, waits bool) {
	if c.wall == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if waits {
		c.waiting[key] = struct{}{}
		return
	}
	delete(c.waiting, key)
}

// watchClock has every key that waits looked at again when the wall clock has been set.
func (c *Controller[K]) watchClock(ctx context.Context) {
	ticker := time.NewTicker(clockInterval)
	defer ticker.Stop()
	began := c.wall.Ago(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !c.wall.WasSet(began) {
			continue
		}
		began = c.wall.Ago(0)
		c.mu.Lock()
		klog.FromContext(ctx).Info("The clock has been set, looking again at what waits for an instant", "waiting", len(c.waiting))
		for key := range c.waiting {
			c.queue.Add(key)
		}
		c.mu.Unlock()
	}
}

// reconcile turns a panic into an error, so that one bad object cannot take down the
// server for all tenants.
func (c *Controller[K]) reconcile(ctx context.Context, key K) (_ Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return c.reconciler.Reconcile(ctx, key)
}

func withKey(logger klog.Logger, key any) klog.Logger {
	k, ok := key.(logicalcluster.Key)
	if !ok {
		return logger.WithValues("object", key)
	}
	return logger.WithValues("cluster", k.Cluster, "object", klog.KRef(k.Namespace, k.Name))
}
