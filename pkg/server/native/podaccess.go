package native

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
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/tunnel"
)

// PodAccess is how the subresources of pods that need a kubelet reach one: through the
// tunnel of the physical cluster that runs the pod. All fields are required.
type PodAccess struct {
	Tunnels    *tunnel.Tunnels
	Authorizer authorizer.UnconditionalAuthorizer
	// Assignments returns the Assignments of a namespace of a workspace.
	Assignments func(cluster logicalcluster.Name, namespace string) []*schedulingv1alpha1.Assignment
}

// place is where a pod's subresource is served, and the way there.
type place struct {
	url       *url.URL
	transport http.RoundTripper
}

// locate returns where a pod's subresource is served, or an error that says why nobody
// serves it now.
func (p *PodAccess) locate(ctx context.Context, pods rest.Getter, name, subresource string, opts runtime.Object) (*place, error) {
	cluster, err := logicalcluster.FromContext(ctx)
	if err != nil {
		return nil, err
	}
	obj, err := pods.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pod, ok := obj.(*core.Pod)
	if !ok {
		return nil, fmt.Errorf("the storage of pods holds a %T", obj)
	}
	target, downstream, err := p.placed(cluster, pod)
	if err != nil {
		return nil, err
	}
	if err := unreachable(pod.Name, p.Tunnels.Check(target, cluster)); err != nil {
		return nil, err
	}
	query, err := legacyscheme.ParameterCodec.EncodeParameters(opts, corev1.SchemeGroupVersion)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the options of pods/%s: %w", subresource, err)
	}
	return &place{
		url:       tunnel.PodURL(target, cluster, pod.Namespace, downstream, subresource, query),
		transport: p.Tunnels.Transport(cluster),
	}, nil
}

// placed returns the target that runs a pod, and the pod's name there. A mirrored pod
// says so itself: nobody but the target's syncer can write one. One that the user made
// runs under its own name wherever its namespace is; of several targets the first that
// serves is taken.
func (p *PodAccess) placed(cluster logicalcluster.Name, pod *core.Pod) (target, name string, err error) {
	if target, mirrored := pod.Labels[workloadv1alpha1.TargetLabelKey]; mirrored {
		if name, ok := names.Mirrored(target, pod.Name); ok {
			return target, name, nil
		}
		return "", "", apierrors.NewInternalError(fmt.Errorf("pod %q does not have the name that target %q gives", pod.Name, target))
	}
	assignments := p.Assignments(cluster, pod.Namespace)
	if len(assignments) == 0 {
		return "", "", apierrors.NewBadRequest(fmt.Sprintf("pod %q has not been placed on a cluster", pod.Name))
	}
	first := slices.MinFunc(assignments, func(a, b *schedulingv1alpha1.Assignment) int {
		if a, b := serves(a), serves(b); a != b {
			return b - a
		}
		return strings.Compare(a.Name, b.Name)
	})
	return first.Spec.Target, pod.Name, nil
}

func serves(a *schedulingv1alpha1.Assignment) int {
	if a.Status.Phase == schedulingv1alpha1.AssignmentServing {
		return 1
	}
	return 0
}

// unreachable puts an error of the tunnel into words for the user; nil stays nil.
func unreachable(pod string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, tunnel.ErrNotConnected):
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the cluster that runs pod %q is not connected at the moment: the pod keeps running, try again later", pod))
	case errors.Is(err, tunnel.ErrBusy):
		return apierrors.NewTooManyRequests(fmt.Sprintf("too many connections to the cluster that runs pod %q", pod), 1)
	case errors.Is(err, tunnel.ErrShareUsed):
		return apierrors.NewTooManyRequests(fmt.Sprintf("too many connections from this workspace to the cluster that runs pod %q: it may have %d at a time; end some of its logs, exec, attach or port-forward", pod, tunnel.MaxStreamsPerCluster), 1)
	default:
		return apierrors.NewServiceUnavailable(fmt.Sprintf("cannot reach the cluster that runs pod %q: %v", pod, err))
	}
}

// forwarded are the headers that go through a tunnel: what streaming needs. The caller's
// credentials and identity stay here.
var forwarded = []string{"Accept", "Connection", "Content-Length", "Content-Type", "Origin", "Sec-Websocket-Extensions",
	"Sec-Websocket-Key", "Sec-Websocket-Protocol", "Sec-Websocket-Version", "Upgrade", "User-Agent", "X-Stream-Protocol-Version"}

// bearerProtocol starts a WebSocket protocol that browsers carry a token in.
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

func forwardedHeader(in http.Header) http.Header {
	out := http.Header{}
	for _, name := range forwarded {
		if values, ok := in[name]; ok {
			out[name] = values
		}
	}
	if protocols := strings.Join(out["Sec-Websocket-Protocol"], ","); strings.Contains(protocols, bearerProtocol) {
		kept := slices.DeleteFunc(strings.Split(protocols, ","), func(protocol string) bool {
			return strings.HasPrefix(strings.TrimSpace(protocol), bearerProtocol)
		})
		out.Set("Sec-Websocket-Protocol", strings.TrimSpace(strings.Join(kept, ",")))
	}
	return out
}

// proxy returns a handler that passes a request on, with its change of protocol.
func (p *place) proxy(pod string, responder rest.Responder) http.Handler {
	return &httputil.ReverseProxy{
		Transport:     p.transport,
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL, r.Out.Host = p.url, p.url.Host
			r.Out.Header = forwardedHeader(r.Out.Header)
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { responder.Error(unreachable(pod, err)) },
		// What goes wrong after the protocol has changed is either side's end.
		ErrorLog: log.New(io.Discard, "", 0),
	}
}

// statusChecker turns the answer to a request for a log into an error unless it is one.
type statusChecker struct{}

// maxStatus bounds what is read of an answer that is no log.
const maxStatus = 64 << 10

// Check implements genericrest.HttpResponseChecker.
func (statusChecker) Check(resp *http.Response) error {
	if resp.StatusCode >= http.StatusOK && resp.StatusCode < http.StatusMultipleChoices {
		return nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("cannot read the physical cluster's answer: %w", err))
	}
	status := metav1.Status{}
	if json.Unmarshal(b, &status) == nil && status.Status == metav1.StatusFailure {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return apierrors.NewInternalError(fmt.Errorf("the physical cluster answers %s: %s", resp.Status, strings.TrimSpace(string(b))))
}
