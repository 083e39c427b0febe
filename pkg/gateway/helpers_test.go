package gateway

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

const (
	demoHost  = "demo.example.com"
	shopPlace = "ws1/shop"
)

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: "shop", UID: "uid-1", Generation: 1,
		Annotations: map[string]string{logicalcluster.AnnotationKey: "ws1"},
	}
}

func makeIngress() *networkingv1.Ingress {
	return &networkingv1.Ingress{TypeMeta: bookmarkTypes["ingresses"], ObjectMeta: meta("web"), Spec: networkingv1.IngressSpec{
		Rules: []networkingv1.IngressRule{{Host: demoHost, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: "/hello", PathType: ptr.To(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: "hello", Port: networkingv1.ServiceBackendPort{Number: 80}},
			}}},
		}}}},
	}}
}

// makeClaim returns the server's word on the hosts of an Ingress.
func makeClaim(i *networkingv1.Ingress, held bool) *networkingv1alpha1.HostClaim {
	c := &networkingv1alpha1.HostClaim{TypeMeta: bookmarkTypes["hostclaims"], ObjectMeta: i.ObjectMeta, Spec: networkingv1alpha1.HostClaimSpec{IngressUID: i.UID}}
	for _, rule := range i.Spec.Rules {
		c.Spec.Hosts = append(c.Spec.Hosts, networkingv1alpha1.ClaimedHost{Host: rule.Host, Held: held})
	}
	return c
}

func makeService() *corev1.Service {
	return &corev1.Service{TypeMeta: bookmarkTypes["services"], ObjectMeta: meta("hello"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
}

func makeAssignment(target string, state schedulingv1alpha1.AssignmentState, generation int64) *schedulingv1alpha1.Assignment {
	a := &schedulingv1alpha1.Assignment{TypeMeta: bookmarkTypes["assignments"], ObjectMeta: meta(target), Spec: schedulingv1alpha1.AssignmentSpec{Target: target, State: state}}
	a.Generation = generation
	return a
}

// makeSlice returns the mirrored slice of a target, whose one endpoint is the server.
func makeSlice(t *testing.T, target string, server *httptest.Server) *discoveryv1.EndpointSlice {
	t.Helper()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	s := &discoveryv1.EndpointSlice{
		TypeMeta: bookmarkTypes["endpointslices"], ObjectMeta: meta("hello-" + target), AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{host}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(number))}},
	}
	s.Labels = map[string]string{workloadv1alpha1.TargetLabelKey: target, discoveryv1.LabelServiceName: "hello"}
	return s
}

func newBackend(t *testing.T, name string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("hold") {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, name)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// running is a gateway that runs.
type running struct {
	*Gateway

	t    *testing.T
	stop context.CancelFunc
	done chan error
}

func start(t *testing.T, f *fakeServer, mutate ...func(*Options)) *running {
	t.Helper()
	o := NewOptions()
	o.Kubeconfig, o.Listen, o.AdminListen, o.Name, o.StateDir = "unused", "127.0.0.1:0", "127.0.0.1:0", "gw1", ""
	o.Proxy.ProbeInterval = 100 * time.Millisecond
	for _, m := range mutate {
		m(o)
	}
	if err := o.Complete(); err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	g, err := New(&Config{options: *o, restConfig: &rest.Config{Host: f.URL + "/services/gateway"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{Gateway: g, t: t, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- g.Run(ctx) }()
	t.Cleanup(func() { r.end() })
	return r
}

func (r *running) end() {
	r.stop()
	if err, ok := <-r.done; ok {
		close(r.done)
		if err != nil {
			r.t.Errorf("Run: %v", err)
		}
	}
}

// get returns the status and body of a GET at the demo host.
func (r *running) get(path string) (int, string) {
	r.t.Helper()
	return r.getHost(demoHost, path)
}

func (r *running) getHost(host, path string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.Addr().String()+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Host = host
	return do(r.t, req)
}

func (r *running) adminGet(path string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.AdminAddr().String()+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return do(r.t, req)
}

func do(t *testing.T, req *http.Request) (int, string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// hello waits until the demo application answers with the name.
func (r *running) hello(name string) {
	r.t.Helper()
	eventually(r.t, "an answer of "+name, func() bool {
		code, body := r.get("/hello")
		return code == http.StatusOK && body == name
	})
}

// awaitReport waits until the server has that report, revision aside.
func awaitReport(t *testing.T, f *fakeServer, want ...networkingv1alpha1.GatewayTargetReport) networkingv1alpha1.GatewayReportSpec {
	t.Helper()
	var got networkingv1alpha1.GatewayReportSpec
	deadline := time.Now().Add(20 * time.Second)
	for {
		got, _ = f.report(shopPlace)
		diff := cmp.Diff(want, got.Targets, cmpopts.EquateEmpty())
		if diff == "" {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("report (-want +got):\n%s", diff)
		}
		time.Sleep(time.Millisecond)
	}
}

// deploy makes the demo application run on target east.
func deploy(t *testing.T, f *fakeServer, east *httptest.Server) {
	t.Helper()
	f.put("hostclaims", makeClaim(makeIngress(), true))
	f.put("ingresses", makeIngress())
	f.put("services", makeService())
	f.put("assignments", makeAssignment("teast", schedulingv1alpha1.AssignmentActive, 1))
	f.put("endpointslices", makeSlice(t, "teast", east))
}
