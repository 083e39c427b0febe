package virtual

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// maxBody is upstream's limit for one request.
const maxBody = 3 << 20

const (
	jsonType  = "application/json"
	mergeType = string(types.MergePatchType)
	applyType = string(types.ApplyPatchType)
)

// writeRule says what may be written of a resource.
type writeRule struct {
	verbs        sets.Set[string]
	subresources sets.Set[string]
	// needsGrant demands that the namespace is assigned to the caller. Deleting what is
	// one's own is free of it, so that what is left behind can be cleared away.
	needsGrant bool
	// noApply refuses server-side apply, for rules that must know the whole outcome.
	noApply bool
	// patch makes the JSON patch that is forwarded in place of what the client sent, for
	// rules that compare the whole object, which may change after the check. Optional.
	patch func(c change) []map[string]any
	// stamp sets fields of the body that are the server's to say. Optional.
	stamp func(body map[string]any, now time.Time)
	// check refuses a change with an error that says why. Nil allows all.
	check func(s *scope, c change) error
}

// change is one write, as a rule sees it.
type change struct {
	cluster logicalcluster.Name
	// name is empty for a create that leaves it to the server.
	name string
	// old is the object as it stands; nil if there is none. new is what the client
	// sends, or for a merge patch the outcome; nil for a delete.
	old, new *unstructured.Unstructured
}

// states returns those of old and new that exist.
func (c change) states() []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, obj := range []*unstructured.Unstructured{c.old, c.new} {
		if obj != nil {
			out = append(out, obj)
		}
	}
	return out
}

// write checks one write and forwards it. What is forwarded is encoded anew from what
// was checked, and names the uid of the object that was looked at: so the API cannot
// read the body differently, nor write to another object of the same name.
func (ws *workspace) write(c *call, res *resource, info *request.RequestInfo, cluster logicalcluster.Name) error {
	rule, gr := res.write, res.gvr.GroupResource()
	if rule == nil || !rule.verbs.Has(info.Verb) || info.Subresource != "" && !rule.subresources.Has(info.Subresource) || res.namespaced != (info.Namespace != "") {
		return methodNotSupported(res, info.Verb)
	}
	if rule.needsGrant && info.Verb != "delete" {
		if err := ws.requireGrant(c, gr, info, cluster); err != nil {
			return err
		}
	}
	body, err := readBody(c)
	if err != nil {
		return err
	}
	if rule.stamp != nil {
		rule.stamp(body.object, ws.handler.config.Clock.Now())
	}
	w := &pendingWrite{rule: rule, gr: gr, info: info, contentType: body.contentType, body: body.object}
	ch := change{cluster: cluster, name: info.Name}
	if info.Verb != "create" {
		if ch.old, err = ws.handler.fetch(c.r.Context(), res, objectKey(cluster, info)); err != nil {
			if !apierrors.IsNotFound(err) || body.contentType != applyType {
				return err
			}
			ch.old = nil
		}
		if ch.old != nil && ws.hidden(c, res, info, cluster, ch.old) {
			return apierrors.NewNotFound(gr, info.Name)
		}
	}
	query := c.r.URL.Query()
	if err := w.prepare(&ch, query); err != nil {
		return err
	}
	if rule.check != nil {
		if err := rule.check(c.scope, ch); err != nil {
			return apierrors.NewForbidden(gr, ch.name, err)
		}
	}
	method, contentType, checked := c.r.Method, w.contentType, any(w.body)
	if rule.patch != nil {
		method, contentType, checked = http.MethodPatch, string(types.JSONPatchType), rule.patch(ch)
	}
	b, err := json.Marshal(checked)
	if err != nil {
		return fmt.Errorf("cannot encode the checked request: %w", err)
	}
	return ws.handler.forward(c, cluster, method, apiPath(res, info.Namespace, info.Name, info.Subresource), contentType, b)
}

// hidden reports whether an object is neither the caller's nor in a namespace of the
// caller's: whether it exists is then none of the caller's business.
func (ws *workspace) hidden(c *call, res *resource, info *request.RequestInfo, cluster logicalcluster.Name, obj *unstructured.Unstructured) bool {
	if res.audience == nil || ws.visible(c, res, obj) {
		return false
	}
	return !ws.handler.assignments.has(grant{target: c.scope.target, space: space{cluster: cluster, namespace: info.Namespace}})
}

// requireGrant refuses writes to namespaces that are not the caller's. The assignment
// may be so new that only storage has it.
func (ws *workspace) requireGrant(c *call, gr schema.GroupResource, info *request.RequestInfo, cluster logicalcluster.Name) error {
	g := grant{target: c.scope.target, space: space{cluster: cluster, namespace: info.Namespace}}
	if ws.handler.assignments.has(g) {
		return nil
	}
	obj, err := ws.handler.fetch(c.r.Context(), assignmentsResource, logicalcluster.Key{Cluster: cluster, Namespace: info.Namespace, Name: g.target})
	if err == nil && targetOfAssignment(obj) == g.target {
		return nil
	}
	return forbidden(gr, info.Name, fmt.Sprintf("namespace %q of cluster %q is not assigned to this sync target", info.Namespace, cluster))
}

// requestBody is what a client sent.
type requestBody struct {
	contentType string
	object      map[string]any
}

func readBody(c *call) (requestBody, error) {
	b, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return requestBody{}, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the limit is %d bytes", maxBody))
		}
		return requestBody{}, apierrors.NewBadRequest(fmt.Sprintf("cannot read the request: %v", err))
	}
	header := c.r.Header.Get("Content-Type")
	if header == "" {
		header = jsonType
	}
	contentType, _, err := mime.ParseMediaType(header)
	if err != nil {
		return requestBody{}, unsupportedMediaType(header)
	}
	if contentType == applyType {
		// JSON is YAML, so apply is forwarded as JSON as well.
		if b, err = yaml.YAMLToJSON(b); err != nil {
			return requestBody{}, apierrors.NewBadRequest(fmt.Sprintf("cannot read the request: %v", err))
		}
	}
	if c.r.Method == http.MethodDelete && len(b) == 0 {
		return requestBody{contentType: jsonType}, nil
	}
	if contentType != jsonType && (contentType != mergeType && contentType != applyType || c.r.Method != http.MethodPatch) {
		return requestBody{}, unsupportedMediaType(contentType)
	}
	if c.r.Method == http.MethodPatch && contentType == jsonType {
		return requestBody{}, unsupportedMediaType(contentType)
	}
	obj := &unstructured.Unstructured{}
	if err := decodeObject(b, obj); err != nil {
		return requestBody{}, apierrors.NewBadRequest(err.Error())
	}
	return requestBody{contentType: contentType, object: obj.Object}, nil
}

func decodeObject(b []byte, into *unstructured.Unstructured) error {
	if err := utiljson.Unmarshal(b, &into.Object); err != nil {
		return fmt.Errorf("the body is no JSON object: %w", err)
	}
	if into.Object == nil {
		return errors.New("the body is no JSON object: it is null")
	}
	return nil
}

func unsupportedMediaType(contentType string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusUnsupportedMediaType,
		Reason:  metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("a virtual workspace does not take %q: it takes %s to create, update and delete, and %s or %s to patch", contentType, jsonType, mergeType, applyType),
	}}
}

// pendingWrite is a write on its way to the API.
type pendingWrite struct {
	rule        *writeRule
	gr          schema.GroupResource
	info        *request.RequestInfo
	contentType string
	body        map[string]any
}

// prepare completes ch and makes the body say which object it is meant for.
func (w *pendingWrite) prepare(ch *change, query url.Values) error {
	switch {
	case w.info.Verb == "delete":
		return w.prepareDelete(ch.old, query)
	case w.contentType == mergeType:
		ch.new = &unstructured.Unstructured{Object: mergePatch(ch.old.DeepCopy().Object, w.body)}
	case w.contentType == applyType && w.rule.noApply:
		return unsupportedMediaType(w.contentType)
	default:
		ch.new = &unstructured.Unstructured{Object: w.body}
	}
	if w.info.Verb == "create" {
		ch.name = ch.new.GetName()
		return nil
	}
	if ch.old == nil {
		return nil
	}
	if w.body["metadata"] == nil {
		w.body["metadata"] = map[string]any{}
	}
	metadata, ok := w.body["metadata"].(map[string]any)
	if !ok {
		return apierrors.NewBadRequest("metadata is no JSON object")
	}
	if uid, set := metadata["uid"]; set && uid != string(ch.old.GetUID()) {
		return apierrors.NewConflict(w.gr, w.info.Name, fmt.Errorf("the object has uid %q, the request is for uid %q", ch.old.GetUID(), uid))
	}
	metadata["uid"] = string(ch.old.GetUID())
	// Where the body is not what is forwarded, the API does not see this.
	if rv, set := metadata["resourceVersion"]; w.rule.patch != nil && set && rv != ch.old.GetResourceVersion() {
		return apierrors.NewConflict(w.gr, w.info.Name, fmt.Errorf("the object has changed to resourceVersion %q, the request is for %q", ch.old.GetResourceVersion(), rv))
	}
	return nil
}

// prepareDelete sets the precondition that the object is the one looked at. Options in
// the query move to the body, since the API reads them only where there is no body.
func (w *pendingWrite) prepareDelete(old *unstructured.Unstructured, query url.Values) error {
	options := &metav1.DeleteOptions{}
	if len(w.body) > 0 {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(w.body, options); err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("the body is no DeleteOptions: %v", err))
		}
	} else if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&query, options, nil); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("the query holds no DeleteOptions: %v", err))
	}
	uid := old.GetUID()
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	if options.Preconditions.UID != nil && *options.Preconditions.UID != uid {
		return apierrors.NewConflict(w.gr, w.info.Name, fmt.Errorf("the object has uid %q, the precondition is uid %q", uid, *options.Preconditions.UID))
	}
	options.Preconditions.UID = &uid
	options.Kind, options.APIVersion = "DeleteOptions", "v1"
	body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(options)
	if err != nil {
		return fmt.Errorf("cannot encode DeleteOptions: %w", err)
	}
	w.body = body
	return nil
}

// mergePatch applies an RFC 7386 patch to target, in place.
func mergePatch(target, patch map[string]any) map[string]any {
	if target == nil {
		target = map[string]any{}
	}
	for key, value := range patch {
		if value == nil {
			delete(target, key)
			continue
		}
		if inner, ok := value.(map[string]any); ok {
			// What is there but no object is replaced, and nulls in the patch vanish.
			existing, _ := target[key].(map[string]any)
			target[key] = mergePatch(existing, inner)
			continue
		}
		target[key] = value
	}
	return target
}
