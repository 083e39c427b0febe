package virtual

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// minStream is the shortest time after which the server ends a stream for which the
// client sets no end; it spreads the clients that all come back after a restart. No stream
// lasts longer than maxStream, whatever its client asks for: whether the client may read is
// asked at its beginning only.
const (
	minStream = 30 * time.Minute
	maxStream = 2 * minStream
)

// readAll serves list and watch of all clusters.
func (ws *workspace) readAll(c *call, res *resource, info *request.RequestInfo) error {
	if res.audience == nil || info.Subresource != "" || (info.Verb != "list" && info.Verb != "watch") {
		return methodNotSupported(res, info.Verb)
	}
	query := c.r.URL.Query()
	if info.Namespace != "" || info.Name != "" || query.Get("labelSelector") != "" || query.Get("fieldSelector") != "" {
		return apierrors.NewBadRequest("a virtual workspace shows all objects of all namespaces: it takes no namespace, name or selector here")
	}
	assigned := res.assigned && (c.scope.mayAssign == nil || c.scope.mayAssign(res.gvr.GroupResource()))
	if res.assigned && !assigned && !res.hasOwn() {
		return forbidden(res.gvr.GroupResource(), "", "the SyncTarget's spec.resources does not name this resource")
	}
	if info.Verb == "list" {
		return ws.list(c, res, assigned)
	}
	if err := validateStart(query); err != nil {
		return err
	}
	timeout, err := streamTimeout(query)
	if err != nil {
		return err
	}
	h, err := ws.hub(c.r.Context(), res)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), timeout)
	defer cancel()
	defer context.AfterFunc(ws.ctx, cancel)()
	s := h.open(c.scope.target, assigned)
	defer h.remove(s)
	if err := s.serve(ctx, res, c.w); err != nil {
		// The header is sent; all that is left is to end the stream.
		klog.FromContext(ctx).V(2).Info("Stream of a virtual workspace failed", "workspace", ws.name, "resource", res.gvr, "target", c.scope.target, "err", err)
	}
	return nil
}

// hasOwn reports whether a resource has objects that are one target's own, whatever is
// assigned: those it may write.
func (r *resource) hasOwn() bool { return r.write != nil }

// validateStart refuses all streams but those that begin with the whole state.
func validateStart(query map[string][]string) error {
	get := func(name string) string { return strings.Join(query[name], ",") }
	initial, _ := strconv.ParseBool(get("sendInitialEvents"))
	bookmarks, _ := strconv.ParseBool(get("allowWatchBookmarks"))
	rv := get("resourceVersion")
	if initial && bookmarks && (rv == "" || rv == "0") {
		return nil
	}
	return apierrors.NewResourceExpired("a stream of a virtual workspace cannot be resumed: begin with sendInitialEvents=true, allowWatchBookmarks=true and no resourceVersion")
}

func streamTimeout(query map[string][]string) (time.Duration, error) {
	text := strings.Join(query["timeoutSeconds"], ",")
	if text == "" {
		return minStream + rand.N(maxStream-minStream), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 32)
	if err != nil || seconds < 0 {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("timeoutSeconds %q is no number of seconds", text))
	}
	if seconds == 0 {
		return minStream + rand.N(maxStream-minStream), nil
	}
	return min(time.Duration(seconds)*time.Second, maxStream), nil
}

// list answers with what a stream begins with.
func (ws *workspace) list(c *call, res *resource, assigned bool) error {
	h, err := ws.hub(c.r.Context(), res)
	if err != nil {
		return err
	}
	s := h.open(c.scope.target, assigned)
	defer h.remove(s)
	objects, revision, err := s.state(c.r.Context())
	if err != nil {
		return err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"%d"},"items":[`, res.gvr.GroupVersion().String(), res.kind+"List", revision)
	for n, obj := range objects {
		b, err := encode(res, obj)
		if err != nil {
			return err
		}
		if n > 0 {
			out.WriteByte(',')
		}
		out.Write(b)
	}
	out.WriteString("]}\n")
	writeJSON(c.w, out.Bytes())
	return nil
}

// state consumes the initial state of s and returns it, sorted by key.
func (s *stream) state(ctx context.Context) ([]*unstructured.Unstructured, uint64, error) {
	held := map[logicalcluster.Key]*unstructured.Unstructured{}
	for {
		var b burst
		select {
		case <-ctx.Done():
			return nil, 0, apierrors.NewTimeoutError("the state was not complete in time", 1)
		case <-s.end:
			return nil, 0, apierrors.NewTimeoutError("too many changes while listing", 1)
		case b = <-s.queue:
		}
		if b.event == watch.Bookmark {
			out := make([]*unstructured.Unstructured, 0, len(held))
			for _, obj := range held {
				out = append(out, obj)
			}
			slices.SortFunc(out, func(a, b *unstructured.Unstructured) int {
				return strings.Compare(logicalcluster.KeyOf(a).String(), logicalcluster.KeyOf(b).String())
			})
			return out, b.revision, nil
		}
		objects := b.objects
		if b.item != nil {
			objects = []*unstructured.Unstructured{b.item.obj}
		}
		for _, obj := range objects {
			if b.event == watch.Deleted {
				delete(held, logicalcluster.KeyOf(obj))
				continue
			}
			held[logicalcluster.KeyOf(obj)] = obj
		}
	}
}

// get serves one object that the caller sees, as it stands in storage.
func (ws *workspace) get(c *call, res *resource, info *request.RequestInfo, cluster logicalcluster.Name) error {
	if res.audience == nil || info.Subresource != "" || info.Name == "" {
		return methodNotSupported(res, info.Verb)
	}
	obj, err := ws.handler.fetch(c.r.Context(), res, objectKey(cluster, info))
	if err != nil {
		return err
	}
	if !ws.visible(c, res, obj) {
		return apierrors.NewNotFound(res.gvr.GroupResource(), info.Name)
	}
	b, err := encode(res, obj)
	if err != nil {
		return err
	}
	writeJSON(c.w, b)
	return nil
}

func (ws *workspace) visible(c *call, res *resource, obj *unstructured.Unstructured) bool {
	return c.scope.sees(res.audience(obj), func(g grant) bool {
		if c.scope.mayAssign != nil && !c.scope.mayAssign(res.gvr.GroupResource()) {
			return false
		}
		return ws.handler.assignments.has(g)
	})
}

// computed serves get and list of a resource that no storage holds.
func (ws *workspace) computed(c *call, res *resource, info *request.RequestInfo, cluster logicalcluster.Name) error {
	if cluster == logicalcluster.Wildcard || info.Subresource != "" || (info.Verb != "list" && info.Verb != "get") {
		return methodNotSupported(res, info.Verb)
	}
	objects, err := res.compute(c.r.Context(), cluster)
	if err != nil {
		return err
	}
	if info.Verb == "get" {
		for _, obj := range objects {
			if o, ok := obj.(metav1.Object); ok && o.GetName() == info.Name {
				return encodeJSON(c.w, obj)
			}
		}
		return apierrors.NewNotFound(res.gvr.GroupResource(), info.Name)
	}
	return encodeJSON(c.w, map[string]any{
		"apiVersion": res.gvr.GroupVersion().String(),
		"kind":       res.kind + "List",
		"metadata":   map[string]any{},
		"items":      objects,
	})
}

func encodeJSON(w http.ResponseWriter, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot encode the answer: %w", err)
	}
	writeJSON(w, b)
	return nil
}

func writeJSON(w http.ResponseWriter, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	// An error here is the client's connection, which has nobody left to tell.
	_, _ = w.Write(b)
}
