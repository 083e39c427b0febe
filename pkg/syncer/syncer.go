package syncer

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
	"github.com/13eedeaf/kcp/pkg/version"
)

// The other replica takes over within a lease's duration when the leader dies, and at
// once when it ends in an orderly way.
const (
	leaseDuration = 10 * time.Second
	renewDeadline = 7 * time.Second
	retryPeriod   = 2 * time.Second
)

// Syncer serves one SyncTarget in one physical cluster.
type Syncer struct {
	id        identity
	up        *upstream
	client    dynamic.Interface
	metadata  metadata.Interface
	discovery discovery.DiscoveryInterface
	pods      *podAPI
	// lease is nil without leader election.
	lease *term
}

// New returns a Syncer; it speaks to nobody yet.
func New(c *Config) (*Syncer, error) {
	userAgent := rest.DefaultKubernetesUserAgent()
	upConfig := rest.CopyConfig(c.Upstream)
	upConfig.UserAgent = userAgent
	downConfig := rest.CopyConfig(c.Downstream)
	downConfig.UserAgent = userAgent
	downConfig.QPS = -1
	// Most of the traffic stays within the cluster, and each compressed watch would hold
	// a decompressor of 40 KiB.
	downConfig.DisableCompression = true
	var lease *term
	if c.leaderElect {
		var err error
		if lease, err = newTerm(downConfig, c.identity, c.holder); err != nil {
			return nil, err
		}
		upConfig.Wrap(lease.guard)
		downConfig.Wrap(lease.guard)
	}
	up, err := newUpstream(upConfig)
	if err != nil {
		return nil, err
	}
	httpClient, err := rest.HTTPClientFor(downConfig)
	if err != nil {
		return nil, fmt.Errorf("cannot make an HTTP client for the physical cluster: %w", err)
	}
	client, err := dynamic.NewForConfigAndClient(downConfig, httpClient)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for the physical cluster: %w", err)
	}
	metadataClient, err := metadata.NewForConfigAndClient(downConfig, httpClient)
	if err != nil {
		return nil, fmt.Errorf("cannot make a metadata client for the physical cluster: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(downConfig, httpClient)
	if err != nil {
		return nil, fmt.Errorf("cannot make a discovery client for the physical cluster: %w", err)
	}
	pods, err := newPodAPI(downConfig)
	if err != nil {
		return nil, err
	}
	return &Syncer{id: c.identity, up: up, client: client, metadata: metadataClient, discovery: disco, pods: pods, lease: lease}, nil
}

// newTerm returns the lease of an instance as one replica sees it. It has a transport of
// its own, so that renewals do not queue behind other traffic.
func newTerm(cfg *rest.Config, id identity, holder string) (*term, error) {
	leases, err := coordinationv1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for the lease: %w", err)
	}
	return &term{clock: clock.RealClock{}, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: id.account.Namespace, Name: names.Lease},
		Client:     leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: holder},
	}}, nil
}

// Run works until ctx ends. Neither a control plane nor a physical cluster that is away
// ends it. A control plane with which this version cannot work does: the error says so, and
// whatever runs the syncer shows that it does not stay up and tries again.
func (s *Syncer) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("syncTarget", s.id.name))
	klog.FromContext(ctx).Info("Starting the syncer", "version", version.Get().Version, "instance", s.id.instanceID, "target", s.id.targetKey)
	if s.lease == nil {
		return s.lead(ctx)
	}
	for ctx.Err() == nil {
		if err := s.elect(ctx); err != nil {
			return err
		}
	}
	return nil
}

// elect takes part in one election and leads if it wins. It returns when the lease is
// lost, or when ctx ends; the lease is given back only when all work has ended.
func (s *Syncer) elect(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	won := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: names.Lease, Lock: s.lease, ReleaseOnCancel: true,
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) { won <- leading },
			OnStoppedLeading: func() { logger.Info("Not leading") },
			OnNewLeader:      func(holder string) { logger.Info("Elected", "leader", holder) },
		},
	})
	if err != nil {
		return fmt.Errorf("cannot set up leader election: %w", err)
	}
	// The lease outlives ctx by as long as the work takes to end.
	leaseCtx, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var election sync.WaitGroup
	election.Go(func() { elector.Run(leaseCtx) })
	select {
	case leading := <-won:
		// leading ends with the election, ctx with the process, the term when the lease is
		// seen in other hands.
		leading, cancel := context.WithCancel(leading)
		stop := context.AfterFunc(ctx, cancel)
		s.lease.begin(cancel)
		err = s.lead(leading)
		stop()
		cancel()
	case <-ctx.Done():
	}
	release()
	election.Wait()
	return err
}

// lead runs one session after the other until ctx ends: a new one begins when the
// SyncTarget's resources have changed. An error is one of set-up, or of versions that do not
// fit.
func (s *Syncer) lead(ctx context.Context) error {
	for ctx.Err() == nil {
		target, err := s.syncTarget(ctx)
		if target == nil {
			return err
		}
		if err := s.session(ctx, target.Spec.Resources); err != nil {
			return err
		}
	}
	return nil
}

// session works until ctx ends or the SyncTarget's resources are no longer wanted.
func (s *Syncer) session(ctx context.Context, wanted []workloadv1alpha1.GroupResource) error {
	logger := klog.FromContext(ctx)
	ctx, end := context.WithCancel(ctx)
	defer end()
	synced, err := resources.Synced(wanted)
	if err != nil {
		logger.Error(err, "Syncing the other resources")
	}
	session, err := newSession(ctx, s.id, s.up, s.client, s.metadata, synced)
	if err != nil {
		return err
	}
	session.pods = s.pods
	h := &heart{id: s.id, up: s.up, version: version.Get().Version, nodes: session.down.nodes,
		discovery: discovery.ToServerVersionInterfaceWithContext(s.discovery)}
	var beating sync.WaitGroup
	beating.Go(func() {
		h.run(ctx, func(target *workloadv1alpha1.SyncTarget) {
			if !reflect.DeepEqual(target.Spec.Resources, wanted) {
				logger.Info("The sync target's resources have changed, starting anew")
				end()
			}
		}, end)
	})
	session.run()
	end()
	beating.Wait()
	return nil
}

// targetBackoff spreads the attempts to reach the control plane at the start.
var targetBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 8, Cap: 10 * time.Second}

// syncTarget reads the SyncTarget and tries until it succeeds, or until versions turn out
// not to fit; nil without an error means that ctx has ended.
func (s *Syncer) syncTarget(ctx context.Context) (*workloadv1alpha1.SyncTarget, error) {
	backoff := targetBackoff
	for {
		target, err := s.readSyncTarget(ctx)
		if err == nil {
			return target, nil
		}
		if skew := skewOf(err); skew != nil {
			return nil, skew
		}
		delay := backoff.Step()
		logger := klog.FromContext(ctx)
		switch {
		case isRetired(err):
			logger.Error(err, "The control plane does not have this sync target any more; remove this syncer, or check --sync-target-uid", "retryIn", delay)
			if err := s.retire(ctx); err != nil {
				logger.Error(err, "Cannot remove what this syncer made")
			}
		case apierrors.IsNotFound(err):
			logger.Error(err, "The control plane does not know this sync target; check the address in --from-kubeconfig. Nothing is deleted", "retryIn", delay)
		default:
			logger.Error(err, "Cannot read the sync target, everything keeps running", "retryIn", delay)
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(delay):
		}
	}
}

func (s *Syncer) readSyncTarget(ctx context.Context) (*workloadv1alpha1.SyncTarget, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client, err := s.up.syncTargets()
	if err != nil {
		return nil, err
	}
	obj, err := client.Get(ctx, s.id.name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot read sync target %q: %w", s.id.name, err)
	}
	return decodeSyncTarget(obj)
}
