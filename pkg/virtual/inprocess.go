package virtual

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/server/admission"
)

// serverUser is who this package's own reads are made as.
var serverUser = &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}

var requestInfos = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// LongRunning reports whether r is a stream or a tunnel of a virtual workspace, which no
// filter of the handler chain may time out or count as an ordinary request. It is asked
// before anybody knows who may do what, so it is no more generous than it has to be.
func LongRunning(r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	streams := strings.HasPrefix(r.URL.Path, Prefix+"syncer/") || strings.HasPrefix(r.URL.Path, Prefix+"gateway/")
	return streams && slices.Contains([]string{"true", "1"}, r.URL.Query().Get("watch")) || isTunnel(r)
}

// parse returns what r asks for at apiPath, the path within one logical cluster.
func parse(r *http.Request, apiPath string) (*request.RequestInfo, error) {
	inner := &http.Request{Method: r.Method, Header: r.Header, URL: &url.URL{Path: apiPath, RawQuery: r.URL.RawQuery}}
	info, err := requestInfos.NewRequestInfo(inner)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if !info.IsResourceRequest || len(info.Parts) > 3 {
		return nil, notServed(r.URL.Path)
	}
	for _, segment := range []string{info.Namespace, info.Name, info.Subresource} {
		if problems := content.IsPathSegmentName(segment); len(problems) > 0 {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("path segment %q: %s", segment, problems[0]))
		}
	}
	return info, nil
}

func objectKey(cluster logicalcluster.Name, info *request.RequestInfo) logicalcluster.Key {
	return logicalcluster.Key{Cluster: cluster, Namespace: info.Namespace, Name: info.Name}
}

// apiPath returns the path of a resource, or with a name of one object, within a
// logical cluster.
func apiPath(res *resource, namespace, name, subresource string) string {
	p := "/apis/" + res.gvr.Group
	if res.gvr.Group == "" {
		p = "/api"
	}
	p += "/" + res.gvr.Version
	if namespace != "" {
		p += "/namespaces/" + namespace
	}
	p += "/" + res.gvr.Resource
	for _, segment := range []string{name, subresource} {
		if segment != "" {
			p += "/" + segment
		}
	}
	return p
}

// forward sends r, with another path and body, to one logical cluster and lets it
// answer.
func (h *Handler) forward(c *call, cluster logicalcluster.Name, method, path, contentType string, body []byte) error {
	r := c.r.Clone(c.r.Context())
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			delete(r.Header, name)
		}
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	r.Method = method
	query := c.r.URL.Query()
	r, err := inCluster(r, cluster, privileged(c.user), path, query, body)
	if err != nil {
		return err
	}
	ctx := admission.WithSystemWriter(r.Context(), c.scope.writer)
	h.config.API.ServeHTTP(c.w, r.WithContext(ctx))
	return nil
}

// privileged returns u with the right to do what has been checked. The API asks the
// authorizer once more where an update or patch creates the object, and callers have no
// rights of their own in tenants' workspaces.
func privileged(u user.Info) user.Info {
	return &user.DefaultInfo{
		Name:   u.GetName(),
		UID:    u.GetUID(),
		Groups: append(slices.Clone(u.GetGroups()), user.SystemPrivilegedGroup),
		Extra:  u.GetExtra(),
	}
}

// inCluster makes r a request to path in cluster.
func inCluster(r *http.Request, cluster logicalcluster.Name, u user.Info, path string, query url.Values, body []byte) (*http.Request, error) {
	r.URL = &url.URL{Path: path, RawQuery: query.Encode()}
	r.RequestURI = r.URL.RequestURI()
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	info, err := requestInfos.NewRequestInfo(r)
	if err != nil {
		return nil, fmt.Errorf("cannot forward to %q in cluster %q: %w", path, cluster, err)
	}
	ctx := logicalcluster.WithCluster(r.Context(), cluster)
	ctx = request.WithRequestInfo(ctx, info)
	if info.Namespace != "" {
		ctx = request.WithNamespace(ctx, info.Namespace)
	}
	return r.WithContext(request.WithUser(ctx, u)), nil
}

// read makes a GET request of this package's own and returns the object or list.
func (h *Handler) read(ctx context.Context, cluster logicalcluster.Name, path string) (map[string]any, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot read %q in cluster %q: %w", path, cluster, err)
	}
	r.Header.Set("Accept", "application/json")
	if r, err = inCluster(r, cluster, serverUser, path, nil, nil); err != nil {
		return nil, err
	}
	w := &recorder{header: http.Header{}, code: http.StatusOK}
	h.config.API.ServeHTTP(w, r)
	if w.code != http.StatusOK {
		return nil, w.err()
	}
	obj := &unstructured.Unstructured{}
	if err := decodeObject(w.body.Bytes(), obj); err != nil {
		return nil, fmt.Errorf("cannot read %q in cluster %q: %w", path, cluster, err)
	}
	return obj.Object, nil
}

// patch makes a merge patch of this package's own.
func (h *Handler) patch(ctx context.Context, res *resource, key logicalcluster.Key, subresource string, body []byte) error {
	path := apiPath(res, key.Namespace, key.Name, subresource)
	r, err := http.NewRequestWithContext(ctx, http.MethodPatch, path, nil)
	if err != nil {
		return fmt.Errorf("cannot patch %q in cluster %q: %w", path, key.Cluster, err)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", mergeType)
	if r, err = inCluster(r, key.Cluster, serverUser, path, nil, body); err != nil {
		return err
	}
	w := &recorder{header: http.Header{}, code: http.StatusOK}
	h.config.API.ServeHTTP(w, r)
	if w.code != http.StatusOK {
		return w.err()
	}
	return nil
}

// fetch returns one object as it stands in storage.
func (h *Handler) fetch(ctx context.Context, res *resource, key logicalcluster.Key) (*unstructured.Unstructured, error) {
	obj, err := h.read(ctx, key.Cluster, apiPath(res, key.Namespace, key.Name, ""))
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: obj}, nil
}

// listNamespace returns a consistent list of one namespace. Where the resource is quiet
// it takes up to 100 ms, in which the watch cache waits for etcd to report progress.
func (h *Handler) listNamespace(ctx context.Context, res *resource, s space) (*unstructured.UnstructuredList, error) {
	obj, err := h.read(ctx, s.cluster, apiPath(res, s.namespace, "", ""))
	if err != nil {
		return nil, err
	}
	return (&unstructured.Unstructured{Object: obj}).ToList()
}

// version answers with the server's version.
func (h *Handler) version(c *call) error {
	return h.forward(c, logicalcluster.System, http.MethodGet, "/version", "", nil)
}

// recorder is the http.ResponseWriter of requests that this package makes.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

// err returns the answer's Status as an error.
func (r *recorder) err() error {
	status := &metav1.Status{}
	if err := json.Unmarshal(r.body.Bytes(), status); err != nil || status.Code == 0 {
		return fmt.Errorf("the API answered %d: %q", r.code, r.body.String())
	}
	return &apierrors.StatusError{ErrStatus: *status}
}
