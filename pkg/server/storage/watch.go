package storage

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// watchFromList serves a watch that begins with the present state: a list of the scope,
// the bookmark that ends it where asked for, and a watch from the list's version.
func (s *clusterStorage) watchFromList(ctx context.Context, key string, opts storage.ListOptions, bookmark bool, cluster logicalcluster.Name) (watch.Interface, error) {
	list := s.newListFunc()
	listOpts := opts
	listOpts.SendInitialEvents = nil
	listOpts.ProgressNotify = false
	listOpts.Predicate.AllowWatchBookmarks = false
	listOpts.Predicate.Limit, listOpts.Predicate.Continue = 0, ""
	if listOpts.ResourceVersion == "" {
		// Read from etcd, as it promises the most recent state.
		listOpts.ResourceVersionMatch = ""
	} else {
		listOpts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	if err := s.Interface.GetList(ctx, key, listOpts, list); err != nil {
		return nil, err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	initial := make([]watch.Event, 0, len(items)+1)
	for _, item := range items {
		initial = append(initial, watch.Event{Type: watch.Added, Object: item})
	}
	if bookmark && opts.Predicate.AllowWatchBookmarks {
		event, err := s.initialEventsEnd(accessor.GetResourceVersion())
		if err != nil {
			return nil, err
		}
		initial = append(initial, event)
	}

	watchOpts := opts
	watchOpts.ResourceVersion = accessor.GetResourceVersion()
	watchOpts.ResourceVersionMatch = ""
	watchOpts.SendInitialEvents = nil
	rest, err := s.Interface.Watch(ctx, key, s.indexed(watchOpts, cluster))
	if err != nil {
		return nil, err
	}
	return newPrefixedWatch(initial, rest), nil
}

func (s *clusterStorage) initialEventsEnd(resourceVersion string) (watch.Event, error) {
	obj := s.newFunc()
	rv, err := s.Versioner().ParseResourceVersion(resourceVersion)
	if err != nil {
		return watch.Event{}, err
	}
	if err := s.Versioner().UpdateObject(obj, rv); err != nil {
		return watch.Event{}, err
	}
	if err := storage.AnnotateInitialEventsEndBookmark(obj); err != nil {
		return watch.Event{}, err
	}
	return watch.Event{Type: watch.Bookmark, Object: obj}, nil
}

// prefixedWatch sends some events before those of another watch.
type prefixedWatch struct {
	rest   watch.Interface
	result chan watch.Event
	stop   chan struct{}
	once   sync.Once
}

func newPrefixedWatch(initial []watch.Event, rest watch.Interface) watch.Interface {
	w := &prefixedWatch{rest: rest, result: make(chan watch.Event), stop: make(chan struct{})}
	go w.run(initial)
	return w
}

func (w *prefixedWatch) run(initial []watch.Event) {
	defer close(w.result)
	defer w.rest.Stop()
	for _, event := range initial {
		if !w.send(event) {
			return
		}
	}
	for {
		select {
		case event, ok := <-w.rest.ResultChan():
			if !ok || !w.send(event) {
				return
			}
		case <-w.stop:
			return
		}
	}
}

func (w *prefixedWatch) send(event watch.Event) bool {
	select {
	case w.result <- event:
		return true
	case <-w.stop:
		return false
	}
}

func (w *prefixedWatch) ResultChan() <-chan watch.Event { return w.result }

func (w *prefixedWatch) Stop() { w.once.Do(func() { close(w.stop) }) }
