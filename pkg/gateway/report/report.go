package report

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/gateway/proxy"
	"github.com/13eedeaf/kcp/pkg/gateway/table"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

const (
	// debounce gathers changes that come together.
	debounce = 20 * time.Millisecond
	// patience is how long a report waits for the probes of a new table.
	patience = 80 * time.Millisecond
	// workers is how many reports are written at once.
	workers = 8
)

// Source says what there is to report; proxy.Proxy is one.
type Source interface {
	Status(key table.NamespaceKey) (proxy.Status, bool)
}

// Reporter writes the GatewayReports of one gateway.
type Reporter struct {
	client Client
	source Source
	name   string
	queue  workqueue.TypedRateLimitingInterface[table.NamespaceKey]

	mu sync.Mutex
	// written is what the server has; absent where it has, or may have, nothing.
	written map[table.NamespaceKey]networkingv1alpha1.GatewayReportSpec
	// waiting is since when a namespace has news that wait for probes.
	waiting map[table.NamespaceKey]time.Time
}

// New returns a Reporter for the gateway of that name.
func New(client Client, source Source, name string) *Reporter {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[table.NamespaceKey](50*time.Millisecond, 15*time.Second)
	return &Reporter{
		client:  client,
		source:  source,
		name:    name,
		queue:   workqueue.NewTypedRateLimitingQueue(limiter),
		written: map[table.NamespaceKey]networkingv1alpha1.GatewayReportSpec{},
		waiting: map[table.NamespaceKey]time.Time{},
	}
}

// Changed says that there may be something new to say of a namespace, or that it is gone
// from the table. It does not block and may be called before Run.
func (r *Reporter) Changed(key table.NamespaceKey) { r.queue.AddAfter(key, debounce) }

// Lost says that the server no longer has the report of a namespace.
func (r *Reporter) Lost(key table.NamespaceKey) {
	r.mu.Lock()
	delete(r.written, key)
	r.mu.Unlock()
	r.Changed(key)
}

// Run writes reports until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for r.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	group.Wait()
}

func (r *Reporter) next(ctx context.Context) bool {
	key, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(key)
	if ctx.Err() != nil {
		return true
	}
	if err := r.sync(ctx, key); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot write the report, trying again", "cluster", key.Cluster, "namespace", key.Namespace)
		r.queue.AddRateLimited(key)
		return true
	}
	r.queue.Forget(key)
	return true
}

func (r *Reporter) sync(ctx context.Context, key table.NamespaceKey) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	object := logicalcluster.Key{Cluster: key.Cluster, Namespace: key.Namespace, Name: r.name}
	status, ok := r.source.Status(key)
	if !ok {
		if err := r.client.Delete(ctx, Reports, object); err != nil {
			return fmt.Errorf("cannot delete gateway report %s: %w", object, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.written, key)
		delete(r.waiting, key)
		return nil
	}
	spec := specOf(status)
	if !r.due(key, spec, status) {
		return nil
	}
	// An empty list has to be sent as such: what a merge patch leaves out stays.
	if err := r.client.Put(ctx, Reports, object, map[string]any{"tableRevision": spec.TableRevision, "targets": spec.Targets}); err != nil {
		return fmt.Errorf("cannot write gateway report %s: %w", object, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written[key] = spec
	return nil
}

// due reports whether spec is to be written now. News that still wait for probes are put
// off for a moment.
func (r *Reporter) due(key table.NamespaceKey, spec networkingv1alpha1.GatewayReportSpec, status proxy.Status) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.written[key]
	if ok && !news(last, spec, status) {
		delete(r.waiting, key)
		return false
	}
	if !status.Answered {
		since, ok := r.waiting[key]
		if !ok {
			since = time.Now()
			r.waiting[key] = since
		}
		if time.Since(since) < patience {
			r.queue.AddAfter(key, debounce)
			return false
		}
	}
	delete(r.waiting, key)
	return true
}

// specOf turns the status into the report.
func specOf(s proxy.Status) networkingv1alpha1.GatewayReportSpec {
	out := networkingv1alpha1.GatewayReportSpec{
		TableRevision: s.Revision,
		Targets:       make([]networkingv1alpha1.GatewayTargetReport, 0, len(s.Targets)),
	}
	for _, t := range s.Targets {
		out.Targets = append(out.Targets, networkingv1alpha1.GatewayTargetReport{
			Target:               t.Target,
			AssignmentGeneration: t.Generation,
			Accepting:            t.Accepting,
			Endpoints:            t.Endpoints,
			Backends:             t.Backends,
			HealthyBackends:      t.HealthyBackends,
			InFlight:             t.InFlight,
		})
	}
	return out
}

// news reports whether next says something that last does not.
func news(last, next networkingv1alpha1.GatewayReportSpec, status proxy.Status) bool {
	last.Targets = slices.Clone(last.Targets)
	for i := range last.Targets {
		if i < len(next.Targets) && !status.Targets[i].Draining {
			last.Targets[i].InFlight = next.Targets[i].InFlight
		}
	}
	return !reflect.DeepEqual(last, next)
}
