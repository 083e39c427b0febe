package syncer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
	"github.com/13eedeaf/kcp/pkg/tunnel"
)

const (
	// lasting is how long a tunnel has to last for the next attempt to be made at once.
	// Of two syncers that take it from each other, each waits ever longer.
	lasting = 30 * time.Second
	// headerTimeout bounds how long the server may take to say what it wants.
	headerTimeout = 10 * time.Second
)

var tunnelBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 10, Cap: 30 * time.Second}

// podAPI is the physical cluster's API for streaming: over HTTP/1.1, which can be
// upgraded, with the syncer's own credentials.
type podAPI struct {
	base      *url.URL
	transport http.RoundTripper
}

func newPodAPI(cfg *rest.Config) (*podAPI, error) {
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot tell the address of the physical cluster: %w", err)
	}
	if base.Path == "" {
		// Without it, what is joined to it is no absolute path.
		base.Path = "/"
	}
	transport, err := tunnel.Transport(cfg)
	if err != nil {
		return nil, err
	}
	return &podAPI{base: base, transport: transport}, nil
}

// tunnel holds a tunnel to the control plane open until ctx ends, and serves what comes
// through it.
func (s *session) tunnel(ctx context.Context) {
	logger := klog.FromContext(ctx)
	handler := s.podHandler()
	for backoff := tunnelBackoff; ctx.Err() == nil; {
		began := time.Now()
		err := s.serveTunnel(ctx, handler)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > lasting {
			backoff = tunnelBackoff
		}
		delay := backoff.Step()
		logger.Info("No tunnel to the control plane: logs and exec from workspaces do not work, everything keeps running", "err", err, "retryIn", delay)
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// serveTunnel opens one tunnel and serves it until it ends.
func (s *session) serveTunnel(ctx context.Context, handler http.Handler) error {
	opening, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	l, err := tunnel.Open(opening, s.up.upgrading, s.up.base.Host+"/tunnel")
	if err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("The tunnel to the control plane is open")
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout, ErrorLog: log.New(io.Discard, "", 0)}
	// Ending the session of streams ends all of them, also those that were upgraded.
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer func() { _ = l.Close() }()
	return server.Serve(l)
}

// podHandler serves what the server asks for through the tunnel: of pods in assigned
// namespaces the subresources below, and nothing else. It trusts the server to have
// authorized the user in that workspace, and nothing beyond: whose a namespace is, the
// syncer knows from its assignments and from what stands on the namespace itself.
func (s *session) podHandler() http.Handler {
	mux := http.NewServeMux()
	proxy := &httputil.ReverseProxy{
		Transport: s.pods.transport,
		// Logs are followed.
		FlushInterval: -1,
		Rewrite:       s.rewritePod,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			refuse(w, apierrors.NewServiceUnavailable(fmt.Sprintf("the syncer cannot reach its cluster: %v", err)))
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	mux.HandleFunc(tunnel.PodPattern, func(w http.ResponseWriter, r *http.Request) {
		if err := s.mayReach(r); err != nil {
			klog.FromContext(s.ctx).V(2).Info("Refused a request from the tunnel", "path", r.URL.Path, "err", err)
			refuse(w, err)
			return
		}
		proxy.ServeHTTP(w, r)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("nothing but the subresources of pods is served through a tunnel")))
	})
	return mux
}

// podMethods are the subresources that are served, with their methods.
var podMethods = map[string][]string{
	"log":         {http.MethodGet},
	"exec":        {http.MethodGet, http.MethodPost},
	"attach":      {http.MethodGet, http.MethodPost},
	"portforward": {http.MethodGet, http.MethodPost},
}

// podNamespace returns the namespace of the workspace that a request speaks of.
func podNamespace(r *http.Request) namespaceKey {
	return namespaceKey{Cluster: logicalcluster.Name(r.PathValue("cluster")), Namespace: r.PathValue("namespace")}
}

// mayReach returns an error unless the request is for a pod of a namespace that is
// assigned here.
func (s *session) mayReach(r *http.Request) *apierrors.StatusError {
	key, pod, subresource := podNamespace(r), r.PathValue("pod"), r.PathValue("subresource")
	pods := resources.Pods.GroupResource()
	if !slices.Contains(podMethods[subresource], r.Method) {
		return apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "pods/" + subresource}, r.Method)
	}
	// What is put into a path has to be a name, whatever it was decoded from.
	if !key.Cluster.Valid() || len(validation.IsDNS1123Label(key.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(pod)) > 0 {
		return apierrors.NewBadRequest("no such names of a cluster, namespace and pod")
	}
	if assignment, _ := s.assigned(key); assignment == nil {
		return apierrors.NewForbidden(pods, pod, fmt.Errorf("namespace %q of cluster %q is not assigned to this cluster", key.Namespace, key.Cluster))
	}
	ns, ok := s.down.namespace(s.id.namespace(key))
	if !ok {
		return apierrors.NewNotFound(pods, pod)
	}
	if owner, ok := s.owner(ns); !ok || owner != key {
		return apierrors.NewForbidden(pods, pod, fmt.Errorf("what runs here under the name of namespace %q is not its copy", key.Namespace))
	}
	if !s.down.pods.has(ns.GetName(), pod) {
		return apierrors.NewNotFound(pods, pod)
	}
	return nil
}

// rewritePod makes a request from the tunnel one to the physical cluster's API.
func (s *session) rewritePod(r *httputil.ProxyRequest) {
	to := s.pods.base.JoinPath("api", "v1", "namespaces", s.id.namespace(podNamespace(r.In)), "pods", r.In.PathValue("pod"), r.In.PathValue("subresource"))
	to.RawQuery = r.In.URL.RawQuery
	r.Out.URL, r.Out.Host = to, ""
	// The server sends none of these; if it did, they would speak for somebody else.
	r.Out.Header.Del("Authorization")
	for name := range r.Out.Header {
		if len(name) >= len(impersonate) && name[:len(impersonate)] == impersonate {
			delete(r.Out.Header, name)
		}
	}
}

const impersonate = "Impersonate-"

// refuse answers with a Status, as an API does.
func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	// An error here is the stream's end, which has nobody left to tell.
	_ = json.NewEncoder(w).Encode(status)
}
