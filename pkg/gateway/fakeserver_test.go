package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// fakeServer is the gateway's virtual workspace as the gateway sees it: streams that
// begin with the whole state, and writes of reports and instances.
type fakeServer struct {
	*httptest.Server

	mu       sync.Mutex
	revision int
	objects  map[string]map[string]frame // by resource, by key
	watchers map[string]map[*fakeStream]bool
	// refuse makes streams of these resources, or all for "*", fail.
	refuse map[string]bool
	// reports are those that were written, by cluster/namespace; history has all of them.
	reports   map[string]networkingv1alpha1.GatewayReportSpec
	history   []networkingv1alpha1.GatewayReportSpec
	instances map[string]networkingv1alpha1.GatewayInstanceSpec
	writes    int
	deleted   []string
	wrong     []string
	// failWrites makes that many writes fail.
	failWrites int
}

type frame struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

type fakeStream struct {
	frames chan frame
	cut    chan struct{}
}

func newFakeServer(t *testing.T) *fakeServer {
	f := &fakeServer{
		objects:   map[string]map[string]frame{},
		watchers:  map[string]map[*fakeStream]bool{},
		refuse:    map[string]bool{},
		reports:   map[string]networkingv1alpha1.GatewayReportSpec{},
		instances: map[string]networkingv1alpha1.GatewayInstanceSpec{},
	}
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.away("*")
		f.Close()
		for _, what := range f.wrong {
			t.Errorf("the gateway asked for %s", what)
		}
	})
	return f
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// /services/gateway/clusters/<id>/api[s/<group>]/<version>[/namespaces/<ns>]/<resource>[/<name>]
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) < 7 || parts[0] != "services" || parts[1] != "gateway" || parts[2] != "clusters" {
		f.refuseRequest(w, r)
		return
	}
	cluster, rest := parts[3], parts[6:]
	if parts[4] == "apis" {
		rest = parts[7:]
	}
	if cluster == "*" && r.Method == http.MethodGet {
		f.stream(w, r, rest[0])
		return
	}
	namespace := ""
	if rest[0] == "namespaces" {
		namespace, rest = rest[1], rest[2:]
	}
	if resource := rest[0]; resource != "gatewayreports" && (resource != "gatewayinstances" || cluster != "root") {
		f.refuseRequest(w, r)
		return
	}
	f.write(w, r, rest, logicalcluster.Key{Cluster: logicalcluster.Name(cluster), Namespace: namespace})
}

func (f *fakeServer) refuseRequest(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.wrong = append(f.wrong, r.Method+" "+r.URL.String())
	f.mu.Unlock()
	http.Error(w, "not here", http.StatusNotFound)
}

func (f *fakeServer) stream(w http.ResponseWriter, r *http.Request, resource string) {
	q := r.URL.Query()
	if q.Get("watch") != "true" || q.Get("sendInitialEvents") != "true" || q.Get("allowWatchBookmarks") != "true" {
		f.refuseRequest(w, r)
		return
	}
	f.mu.Lock()
	if f.refuse[resource] || f.refuse["*"] {
		f.mu.Unlock()
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	s := &fakeStream{frames: make(chan frame, 10000), cut: make(chan struct{})}
	for _, object := range f.objects[resource] {
		s.frames <- object
	}
	s.frames <- frame{"BOOKMARK", mustMarshal(metav1.PartialObjectMetadata{
		TypeMeta:   bookmarkTypes[resource],
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(f.revision), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}},
	})}
	if f.watchers[resource] == nil {
		f.watchers[resource] = map[*fakeStream]bool{}
	}
	f.watchers[resource][s] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers[resource], s)
	}()
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	for {
		select {
		case <-r.Context().Done():
			return
		case <-s.cut:
			return
		case next := <-s.frames:
			if err := out.Encode(next); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
	}
}

var bookmarkTypes = map[string]metav1.TypeMeta{
	"ingresses":      {APIVersion: "networking.k8s.io/v1", Kind: "Ingress"},
	"services":       {APIVersion: "v1", Kind: "Service"},
	"endpointslices": {APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
	"assignments":    {APIVersion: "scheduling.kcp.io/v1alpha1", Kind: "Assignment"},
	"gatewayreports": {APIVersion: "networking.kcp.io/v1alpha1", Kind: "GatewayReport"},
	"hostclaims":     {APIVersion: "networking.kcp.io/v1alpha1", Kind: "HostClaim"},
}

func (f *fakeServer) write(w http.ResponseWriter, r *http.Request, rest []string, key logicalcluster.Key) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse["*"] || f.failWrites > 0 {
		f.failWrites--
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	var object struct {
		metav1.PartialObjectMetadata

		Spec json.RawMessage `json:"spec"`
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &object); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	key.Name = object.Name
	if len(rest) == 2 {
		key.Name = rest[1]
	}
	place := string(key.Cluster) + "/" + key.Namespace
	exists := func() bool {
		_, report := f.reports[place]
		_, instance := f.instances[key.Name]
		return rest[0] == "gatewayreports" && report || rest[0] == "gatewayinstances" && instance
	}()
	switch {
	case r.Method != http.MethodPost && !exists:
		http.Error(w, "not found", http.StatusNotFound)
		return
	case r.Method == http.MethodDelete:
		delete(f.reports, place)
		f.deleted = append(f.deleted, place)
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/merge-patch+json",
		r.Method == http.MethodPost && object.Kind == bookmarkTypesKind(rest[0]):
		f.storeLocked(rest[0], place, key.Name, object.Spec)
	default:
		f.wrong = append(f.wrong, fmt.Sprintf("%s %s with %s %s", r.Method, r.URL, r.Header.Get("Content-Type"), body))
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success"})
}

func bookmarkTypesKind(resource string) string {
	return map[string]string{"gatewayreports": "GatewayReport", "gatewayinstances": "GatewayInstance"}[resource]
}

func (f *fakeServer) storeLocked(resource, place, name string, spec json.RawMessage) {
	f.writes++
	if resource == "gatewayinstances" {
		var out networkingv1alpha1.GatewayInstanceSpec
		if err := json.Unmarshal(spec, &out); err != nil {
			f.wrong = append(f.wrong, err.Error())
		}
		f.instances[name] = out
		return
	}
	// A merge patch: what is left out stays.
	out := f.reports[place]
	if err := json.Unmarshal(spec, &out); err != nil {
		f.wrong = append(f.wrong, err.Error())
	}
	f.reports[place] = out
	f.history = append(f.history, out)
}

// put makes the objects part of the state and tells the streams.
func (f *fakeServer) put(resource string, objects ...informer.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range objects {
		f.revision++
		o.SetResourceVersion(fmt.Sprint(f.revision))
		key := logicalcluster.KeyOf(o).String()
		event := frame{"ADDED", mustMarshal(o)}
		sent := event
		if _, ok := f.objects[resource][key]; ok {
			sent.Type = "MODIFIED"
		}
		if f.objects[resource] == nil {
			f.objects[resource] = map[string]frame{}
		}
		f.objects[resource][key] = event
		f.sendLocked(resource, sent)
	}
}

// remove takes objects out of the state and tells the streams.
func (f *fakeServer) remove(resource string, objects ...informer.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range objects {
		delete(f.objects[resource], logicalcluster.KeyOf(o).String())
		f.sendLocked(resource, frame{"DELETED", mustMarshal(o)})
	}
}

func (f *fakeServer) sendLocked(resource string, e frame) {
	for s := range f.watchers[resource] {
		s.frames <- e
	}
}

// away cuts the streams of the resources, or all for "*", and refuses new ones.
func (f *fakeServer) away(resources ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, resource := range resources {
		f.refuse[resource] = true
		for name, streams := range f.watchers {
			if name != resource && resource != "*" {
				continue
			}
			for s := range streams {
				close(s.cut)
				delete(streams, s)
			}
		}
	}
}

// back lets streams of the resources begin again.
func (f *fakeServer) back(resources ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, resource := range resources {
		delete(f.refuse, resource)
	}
}

func (f *fakeServer) report(place string) (networkingv1alpha1.GatewayReportSpec, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, ok := f.reports[place]
	return r, ok
}

func mustMarshal(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
