package virtual

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// queueLength bounds what a stream may lag behind, in bursts: a change is one, and
	// so is the state of a whole namespace.
	queueLength = 1024
	// writeTimeout is how long a client may take to read one chunk.
	writeTimeout = 30 * time.Second
	// chunkSize is about how much is written at once.
	chunkSize = 32 << 10
)

// item is one object of an event, encoded once for all streams.
type item struct {
	resource *resource
	obj      *unstructured.Unstructured

	once sync.Once
	json []byte
	err  error
}

func (i *item) encode() ([]byte, error) {
	i.once.Do(func() { i.json, i.err = encode(i.resource, i.obj) })
	return i.json, i.err
}

// encode returns an object as JSON, without managedFields: they can be half of an
// object and no client of a virtual workspace needs them.
func encode(res *resource, obj *unstructured.Unstructured) ([]byte, error) {
	shown := maps.Clone(obj.Object)
	shown["apiVersion"], shown["kind"] = res.gvr.GroupVersion().String(), res.kind
	if metadata, ok := shown["metadata"].(map[string]any); ok && metadata["managedFields"] != nil {
		metadata = maps.Clone(metadata)
		delete(metadata, "managedFields")
		shown["metadata"] = metadata
	}
	b, err := json.Marshal(shown)
	if err != nil {
		return nil, fmt.Errorf("cannot encode %s %s: %w", res.gvr.Resource, obj.GetName(), err)
	}
	return b, nil
}

// burst is one entry of a stream's queue: one item, or many objects, or a bookmark.
type burst struct {
	event    watch.EventType
	item     *item
	objects  []*unstructured.Unstructured
	revision uint64
}

// stream is one open watch. Its fields belong to the hub's lock, but for the channels.
type stream struct {
	target   string
	assigned bool
	// waiting are the spaces that the initial state still lacks; begun is true once the
	// bookmark is in the queue.
	waiting map[space]bool
	begun   bool

	queue chan burst
	ended bool
	end   chan struct{}
}

func newStream(target string, assigned bool) *stream {
	return &stream{
		target:   target,
		assigned: assigned,
		waiting:  map[space]bool{},
		queue:    make(chan burst, queueLength),
		end:      make(chan struct{}),
	}
}

// sendLocked queues b. A stream whose queue is full ends: it may not miss anything.
func (s *stream) sendLocked(b burst) {
	if s.ended {
		return
	}
	select {
	case s.queue <- b:
	default:
		s.closeLocked()
	}
}

func (s *stream) closeLocked() {
	if !s.ended {
		s.ended = true
		close(s.end)
	}
}

// serve writes the stream to w until it ends, ctx ends or the client is gone. An error
// is that of the client's connection, or an object that cannot be encoded.
func (s *stream) serve(ctx context.Context, res *resource, w http.ResponseWriter) error {
	out := &frameWriter{resource: res, w: w, control: http.NewResponseController(w)}
	// The connection may be used again.
	defer func() { _ = out.control.SetWriteDeadline(time.Time{}) }()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	if err := out.flush(); err != nil {
		return err
	}
	for {
		select {
		case <-s.end:
			return nil
		case <-ctx.Done():
			return nil
		case b := <-s.queue:
			if err := out.write(b); err != nil {
				return err
			}
			if len(s.queue) > 0 {
				continue
			}
			if err := out.flush(); err != nil {
				return err
			}
		}
	}
}

// frameWriter writes metav1.WatchEvents, one a line.
type frameWriter struct {
	resource *resource
	w        http.ResponseWriter
	control  *http.ResponseController
	buf      []byte
}

func (f *frameWriter) write(b burst) error {
	if b.event == watch.Bookmark {
		object, err := json.Marshal(map[string]any{
			"apiVersion": f.resource.gvr.GroupVersion().String(),
			"kind":       f.resource.kind,
			"metadata": map[string]any{
				"resourceVersion": strconv.FormatUint(b.revision, 10),
				"annotations":     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
			},
		})
		if err != nil {
			return fmt.Errorf("cannot encode a bookmark: %w", err)
		}
		return f.frame(b.event, object)
	}
	if b.item != nil {
		object, err := b.item.encode()
		if err != nil {
			return err
		}
		return f.frame(b.event, object)
	}
	for _, obj := range b.objects {
		object, err := encode(f.resource, obj)
		if err != nil {
			return err
		}
		if err := f.frame(b.event, object); err != nil {
			return err
		}
	}
	return nil
}

func (f *frameWriter) frame(event watch.EventType, object []byte) error {
	f.buf = append(f.buf, `{"type":"`...)
	f.buf = append(f.buf, event...)
	f.buf = append(f.buf, `","object":`...)
	f.buf = append(f.buf, object...)
	f.buf = append(f.buf, "}\n"...)
	if len(f.buf) >= chunkSize {
		return f.push()
	}
	return nil
}

// push hands the buffer to the connection.
func (f *frameWriter) push() error {
	// A connection that knows no deadlines has the server's own.
	_ = f.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := f.w.Write(f.buf)
	f.buf = f.buf[:0]
	return err
}

// flush sends what has been written, and lifts the deadline: with HTTP/2 a deadline that
// passes while a stream is quiet resets it.
func (f *frameWriter) flush() error {
	if len(f.buf) > 0 {
		if err := f.push(); err != nil {
			return err
		}
	}
	if err := f.control.Flush(); err != nil {
		return err
	}
	_ = f.control.SetWriteDeadline(time.Time{}) // as above
	return nil
}
