package syncer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
	"github.com/13eedeaf/kcp/pkg/syncer/transform"
)

// Workers per queue. They wait for the network most of the time.
const (
	namespaceWorkers = 4
	objectWorkers    = 16
	mirrorWorkers    = 16
)

// Somebody who changes an object back is answered ever more slowly.
const (
	driftBackoffMin = time.Second
	driftBackoffMax = time.Minute
)

// targetLabel marks mirrors.
const targetLabel = workloadv1alpha1.TargetLabelKey

type sourceInformer = informer.Informer[*unstructured.Unstructured]

// session is the work of one leadership term with one set of resources. It starts from
// nothing and can be ended at any time.
type session struct {
	// ctx ends with the session; caches that are started later end with it too.
	ctx    context.Context
	id     identity
	up     *upstream
	down   *downstream
	synced []resources.Resource

	// sources holds the workspaces' objects; mirrors what the syncer shows there.
	// Pods are in one informer for both.
	sources     map[resources.Resource]*sourceInformer
	mirrors     map[resources.Resource]*sourceInformer
	assignments *sourceInformer
	reports     *sourceInformer

	namespaceQueue *reconciler.Controller[namespaceKey]
	objectQueue    *reconciler.Controller[objectKey]
	mirrorQueue    *reconciler.Controller[mirrorKey]
	eventQueue     *reconciler.Controller[eventKey]

	// pods is nil when no tunnel is wanted.
	pods *podAPI
	// began is when the session did.
	began time.Time

	// working is set once both sides are known.
	working atomic.Bool

	drift *flowcontrol.Backoff
	// settled holds, for objects that others change on the way in, what came of the
	// last apply, so that it is not taken for drift.
	settled sync.Map // objectKey → string
	// restarts holds the mirrored pods that somebody deleted in the workspace.
	restarts sync.Map // mirrorKey → types.UID of the pod downstream
	// withdrawn holds the uids of mirrored pods that the syncer itself deletes.
	withdrawn sync.Map // types.UID → struct{}
}

// newSession returns a session whose caches end with ctx; run does the work.
func newSession(ctx context.Context, id identity, up *upstream, client dynamic.Interface, metadata metadata.Interface, synced []resources.Resource) (*session, error) {
	s := &session{
		began: time.Now(),
		ctx:   ctx, id: id, up: up, down: newDownstream(client, metadata, id.instanceID, synced), synced: synced,
		sources: map[resources.Resource]*sourceInformer{},
		mirrors: map[resources.Resource]*sourceInformer{},
		drift:   flowcontrol.NewBackOff(driftBackoffMin, driftBackoffMax),
	}
	s.namespaceQueue = reconciler.New("namespaces", timed(s.reconcileNamespace), reconciler.WithWorkers(namespaceWorkers))
	s.objectQueue = reconciler.New("objects", timed(s.reconcileObject), reconciler.WithWorkers(objectWorkers))
	s.mirrorQueue = reconciler.New("mirrors", timed(s.reconcileMirror), reconciler.WithWorkers(mirrorWorkers))
	s.eventQueue = reconciler.New("events", timed(s.reconcileEvent), reconciler.WithWorkers(eventWorkers))
	if err := s.addUpstream(); err != nil {
		return nil, err
	}
	s.handleUpstream()
	s.handleDownstream()
	return s, nil
}

// timed bounds one pass, so that a call that hangs frees its worker.
func timed[K comparable](f reconciler.Func[K]) reconciler.Func[K] {
	return func(ctx context.Context, key K) (reconciler.Result, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		return f(ctx, key)
	}
}

func (s *session) addUpstream() error {
	add := func(r resources.Resource, opened func(), deleted func(*unstructured.Unstructured)) (*sourceInformer, error) {
		source, err := s.up.stream(r.GroupVersionResource, opened, deleted)
		if err != nil {
			return nil, fmt.Errorf("cannot follow %s: %w", r, err)
		}
		return informer.New(r.String(), source, nil, informer.WithCodec[*unstructured.Unstructured](jsonCodec{})), nil
	}
	var errs []error
	keep := func(i *sourceInformer, err error) *sourceInformer {
		errs = append(errs, err)
		return i
	}
	for _, r := range s.synced {
		if r != resources.Pods {
			s.sources[r] = keep(add(r, nil, nil))
		}
	}
	// A server that is back may have missed what failed to be written; look at all
	// again instead of waiting until each retry comes round.
	s.assignments = keep(add(resources.Assignments, s.enqueueAll, nil))
	s.reports = keep(add(resources.SyncReports, nil, nil))
	pods := keep(add(resources.Pods, nil, s.podDeletedUpstream))
	s.mirrors[resources.Pods] = pods
	s.mirrors[resources.EndpointSlices] = keep(add(resources.EndpointSlices, nil, nil))
	s.mirrors[resources.ReplicaSets] = keep(add(resources.ReplicaSets, nil, nil))
	for _, r := range s.synced {
		if r == resources.Pods {
			s.sources[r] = pods
		}
	}
	return errors.Join(errs...)
}

func (s *session) handleUpstream() {
	type event = informer.Event[*unstructured.Unstructured]
	s.assignments.AddHandler(func(e event) {
		s.namespaceQueue.Enqueue(namespaceOf(e.Key))
		if e.Added {
			// Objects that came before it were left alone.
			s.enqueueNamespace(namespaceOf(e.Key))
		}
	})
	s.reports.AddHandler(func(e event) {
		if key, ok := s.reported(e.Object()); ok {
			s.objectQueue.Enqueue(key)
		}
	})
	for r, i := range s.sources {
		i.AddHandler(func(e event) {
			if !transform.Skipped(r, e.Object()) {
				s.objectQueue.Enqueue(objectKey{namespaceOf(e.Key), r, e.Key.Name})
			}
			if r.Workload && r != resources.Pods && otherObject(e) {
				s.enqueueOwned(namespaceOf(e.Key), r.Kind, e.Key.Name)
			}
		})
	}
	for r, i := range s.mirrors {
		i.AddHandler(func(e event) {
			if key, ok := s.mirrored(r, e.Object()); ok {
				s.mirrorQueue.Enqueue(key)
				if r == resources.ReplicaSets && otherObject(e) {
					s.enqueueOwned(key.namespaceKey, r.Kind, key.Name)
				}
			}
		})
	}
}

// mirrored returns the key of what a mirror shows; false for an object that is none.
func (s *session) mirrored(r resources.Resource, mirror *unstructured.Unstructured) (mirrorKey, bool) {
	if mirror.GetLabels()[targetLabel] != s.id.targetKey {
		return mirrorKey{}, false
	}
	name, ok := names.Mirrored(s.id.targetKey, mirror.GetName())
	return mirrorKey{namespaceOf(logicalcluster.KeyOf(mirror)), r, name}, ok
}

// podDeletedUpstream notes that a mirrored pod was deleted in the workspace. Whether
// that was somebody's wish is decided with the mirror's key in hand.
func (s *session) podDeletedUpstream(pod *unstructured.Unstructured) {
	if _, own := s.withdrawn.LoadAndDelete(pod.GetUID()); own {
		return
	}
	if key, ok := s.mirrored(resources.Pods, pod); ok {
		s.restarts.Store(key, types.UID(pod.GetAnnotations()[names.MirrorUIDAnnotation]))
	}
}

func (s *session) handleDownstream() {
	for r, c := range s.down.copies {
		c.handle = func(o *unstructured.Unstructured) { s.enqueueCopy(r, o) }
	}
	s.down.namespaces.handle = func(ns *unstructured.Unstructured) {
		if key, ok := s.owner(ns); ok {
			s.namespaceQueue.Enqueue(key)
		}
	}
	// Among the pods there may be copies, too.
	s.down.pods.handle = func(o *unstructured.Unstructured) {
		s.enqueueCopy(resources.Pods, o)
		s.enqueueMirror(resources.Pods, o)
	}
	s.down.replicaSets.handle = func(o *unstructured.Unstructured) { s.enqueueMirror(resources.ReplicaSets, o) }
	s.down.slices.handle = func(o *unstructured.Unstructured) { s.enqueueMirror(resources.EndpointSlices, o) }
}

func (s *session) enqueueCopy(r resources.Resource, o *unstructured.Unstructured) {
	if !s.isCopy(o) {
		return
	}
	if key, ok := s.tenantOf(o.GetNamespace()); ok {
		s.objectQueue.Enqueue(objectKey{key, r, o.GetName()})
		if r.Workload {
			s.touch(o.GetNamespace())
		}
	}
}

func (s *session) enqueueMirror(r resources.Resource, o *unstructured.Unstructured) {
	if s.isCopy(o) {
		return
	}
	if key, ok := s.tenantOf(o.GetNamespace()); ok {
		s.mirrorQueue.Enqueue(mirrorKey{key, r, o.GetName()})
		if r == resources.Pods {
			s.touch(o.GetNamespace())
		}
	}
}

// isCopy reports whether o was applied by this syncer. Controllers hand down labels to
// what they make, so an object with a controller is theirs.
func (s *session) isCopy(o *unstructured.Unstructured) bool {
	if o.GetLabels()[names.SyncerLabel] != s.id.instanceID {
		return false
	}
	for _, ref := range o.GetOwnerReferences() {
		if ref.Controller != nil && *ref.Controller {
			return false
		}
	}
	return o.GetKind() != resources.EndpointSlices.Kind
}

func (s *session) owner(ns *unstructured.Unstructured) (namespaceKey, bool) { return s.id.owner(ns) }

func (s *session) tenantOf(namespace string) (namespaceKey, bool) {
	ns, ok := s.down.namespace(namespace)
	if !ok {
		return namespaceKey{}, false
	}
	return s.owner(ns)
}

// run works until the session's context ends and every pass that was begun has returned.
func (s *session) run() {
	ctx := s.ctx
	logger := klog.FromContext(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, c := range s.down.caches() {
		wg.Go(func() { c.run(ctx) })
	}
	// Streams that begin after this one show all that belongs to its assignments.
	wg.Go(func() { s.assignments.Run(ctx) })
	if !s.assignments.WaitForSync(ctx) {
		return
	}
	for r, i := range s.sources {
		wg.Go(func() { i.Run(ctx) })
		wg.Go(func() {
			if i.WaitForSync(ctx) {
				s.enqueueResource(r)
			}
		})
	}
	// Nothing waits for these; see reconcileReplicaSet.
	wg.Go(func() { s.mirrors[resources.ReplicaSets].Run(ctx) })
	wg.Go(func() { s.watchReplicaSets(ctx) })
	others := []*sourceInformer{s.reports, s.mirrors[resources.EndpointSlices]}
	if _, ok := s.sources[resources.Pods]; !ok {
		others = append(others, s.mirrors[resources.Pods])
	}
	for _, i := range others {
		wg.Go(func() { i.Run(ctx) })
	}
	for r, c := range s.down.copies {
		wg.Go(func() {
			if c.waitForSync(ctx) {
				s.enqueueResource(r)
			}
		})
	}
	ok := s.down.namespaces.waitForSync(ctx) && s.down.pods.waitForSync(ctx) && s.down.slices.waitForSync(ctx)
	for _, i := range others {
		ok = ok && i.WaitForSync(ctx)
	}
	ok = ok && s.mirrors[resources.Pods].WaitForSync(ctx)
	if !ok {
		return
	}
	logger.Info("Both sides are known, syncing", "namespaces", len(s.assignments.List()), "resources", len(s.synced))
	s.enqueueAll()
	s.working.Store(true)
	wg.Go(func() { s.sweep(ctx) })
	wg.Go(func() { wait.UntilWithContext(ctx, func(context.Context) { s.drift.GC() }, driftBackoffMax) })
	wg.Go(func() { s.namespaceQueue.Run(ctx) })
	wg.Go(func() { s.objectQueue.Run(ctx) })
	wg.Go(func() { s.mirrorQueue.Run(ctx) })
	wg.Go(func() { s.eventQueue.Run(ctx) })
	if s.pods != nil {
		wg.Go(func() { s.tunnel(ctx) })
	}
}
