package syncer

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/13eedeaf/kcp/pkg/syncer/resources"
)

// The sweep lists metadata, one kind in one namespace a request.
const (
	// sweepInterval is the least time between two looks at a namespace.
	sweepInterval = 5 * time.Second
	// sweepRate is how many requests there are in a second, however many namespaces.
	sweepRate = 5
	// sweepPage bounds one answer.
	sweepPage = 500
)

// sweep looks, namespace by namespace and round after round until ctx ends, for drift in
// what is not watched, and for events where nobody listens.
func (s *session) sweep(ctx context.Context) {
	limit := flowcontrol.NewTokenBucketRateLimiter(sweepRate, 1)
	for ctx.Err() == nil {
		next := time.After(sweepInterval)
		for _, namespace := range s.down.opened() {
			s.down.hush(time.Now())
			if err := s.sweepNamespace(ctx, limit, namespace); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Cannot look for drift, trying again in the next round")
				// Whatever it is, the other namespaces may have it too.
				pause(ctx, time.After(sweepInterval))
			}
		}
		pause(ctx, next)
	}
}

func pause(ctx context.Context, until <-chan time.Time) {
	select {
	case <-ctx.Done():
	case <-until:
	}
}

func (s *session) sweepNamespace(ctx context.Context, limit flowcontrol.RateLimiter, namespace string) error {
	for _, r := range s.down.confidential {
		if err := s.sweepCopies(ctx, limit, r, namespace); err != nil {
			return err
		}
	}
	if err := s.sweepEvents(ctx, limit, namespace); err != nil {
		// An older manifest does not allow it, and nothing depends on it.
		klog.FromContext(ctx).V(2).Info("Cannot look for events", "namespace", namespace, "err", err)
	}
	return nil
}

// list calls f for the metadata of each object of one resource in one namespace.
func (s *session) list(ctx context.Context, limit flowcontrol.RateLimiter, gvr schema.GroupVersionResource, namespace, selector string, f func(*metav1.PartialObjectMetadata)) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	options := metav1.ListOptions{LabelSelector: selector, Limit: sweepPage}
	for {
		if err := limit.Wait(ctx); err != nil {
			return err
		}
		page, err := s.down.metadata.Resource(gvr).Namespace(namespace).List(ctx, options)
		if err != nil {
			return fmt.Errorf("cannot list %s in downstream namespace %q: %w", gvr.GroupResource(), namespace, err)
		}
		for i := range page.Items {
			f(&page.Items[i])
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

// sweepCopies has those copies looked at that somebody else changed, made or deleted.
func (s *session) sweepCopies(ctx context.Context, limit flowcontrol.RateLimiter, r resources.Resource, namespace string) error {
	listed := map[string]entry{}
	err := s.list(ctx, limit, r.GroupVersionResource, namespace, s.down.selector, func(m *metav1.PartialObjectMetadata) {
		if metav1.GetControllerOfNoCopy(m) == nil {
			listed[m.Name] = entry{uid: m.UID, version: m.ResourceVersion}
		}
	})
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		// The namespace, or the right to it, is on its way out.
		return nil
	}
	if err != nil {
		return err
	}
	key, differ := s.down.compare(r, namespace, listed)
	for _, name := range differ {
		s.objectQueue.Enqueue(objectKey{key, r, name})
	}
	return nil
}

// sweepEvents begins to listen where something happened that nobody saw.
func (s *session) sweepEvents(ctx context.Context, limit flowcontrol.RateLimiter, namespace string) error {
	if s.down.listens(namespace) {
		return nil
	}
	var newest uint64
	var created time.Time
	if err := s.list(ctx, limit, eventsGVR, namespace, "", func(m *metav1.PartialObjectMetadata) {
		newest = max(newest, revision(m.ResourceVersion))
		if m.CreationTimestamp.After(created) {
			created = m.CreationTimestamp.Time
		}
	}); err != nil {
		return err
	}
	if s.down.happened(namespace, newest, created.After(s.began.Add(-eventAge))) {
		s.touch(namespace)
	}
	return nil
}

// revision orders resource versions of one resource; 0 for what is no number.
func revision(resourceVersion string) uint64 {
	n, _ := strconv.ParseUint(resourceVersion, 10, 64)
	return n
}
