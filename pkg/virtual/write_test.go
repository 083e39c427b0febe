package virtual

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/server/pki"
	"github.com/13eedeaf/kcp/pkg/version"
)

// writeWorld has two targets that share namespace c1/ns; c1/private is west's alone.
func writeWorld(t *testing.T) (w *world, east, west target) {
	t.Helper()
	w = newWorld(t)
	east, west = w.register("east"), w.register("west")
	for _, to := range []target{east, west} {
		a := assignment("c1", "ns", to)
		a.SetFinalizers([]string{"workload.kcp.io/syncer", "other"})
		w.put("assignments", a)
	}
	w.put("assignments", assignment("c1", "private", west))
	for ns, of := range map[string][]target{"ns": {east, west}, "private": {west}, "left": {east}} {
		for _, to := range of {
			w.put("pods", obj("Pod", "c1", ns, "web"+suffix(to), labelled(to.key)))
			w.put("syncreports", obj("SyncReport", "c1", ns, to.key+"-web", field(to.key, "spec", "target"),
				field("apps", "spec", "group"), field("v1", "spec", "version"), field("deployments", "spec", "resource"), field(int64(1), "report", "appliedGeneration")))
		}
	}
	w.put("pods", obj("Pod", "c1", "ns", "users"))
	w.put("pods", obj("Pod", "c1", "ns", "users"+suffix(east)))
	w.put("endpointslices", obj("EndpointSlice", "c1", "ns", "web"+suffix(west), labelled(west.key)))
	w.put("replicasets", obj("ReplicaSet", "c1", "ns", "web"+suffix(west), labelled(west.key)))
	w.put("events", obj("Event", "c1", "ns", "e"))
	w.put("configmaps", obj("ConfigMap", "c1", "ns", "a"))
	return w, east, west
}

func suffix(of target) string { return "-" + of.key[len(of.key)-5:] }

const (
	merge = "application/merge-patch+json"
	apply = "application/apply-patch+yaml"
)

func TestSyncerWrites(t *testing.T) {
	w, east, west := writeWorld(t)
	// In paths and bodies EAST and WEST stand for the keys, -E and -W for the suffixes.
	fill := strings.NewReplacer("EAST", east.key, "WEST", west.key, "-E", suffix(east), "-W", suffix(west)).Replace
	const (
		core    = "/clusters/c1/api/v1/namespaces/"
		reports = "/clusters/c1/apis/workload.kcp.io/v1alpha1/namespaces/"
		assigns = "/clusters/c1/apis/scheduling.kcp.io/v1alpha1/namespaces/"
		slices  = "/clusters/c1/apis/discovery.k8s.io/v1/namespaces/"
		apps    = "/clusters/c1/apis/apps/v1/namespaces/"

		own    = `{"metadata":{"name":"new-E","labels":{"workload.kcp.io/target":"EAST"}}}`
		report = `{"metadata":{"name":"EAST-new"},"spec":{"group":"apps","resource":"deployments","target":"EAST","version":"v1"}}`

		released = `{"apiVersion":"v1","kind":"Assignment","metadata":{"name":"EAST","namespace":"ns","uid":"UID","annotations":{"kcp.io/cluster":"c1"},"finalizers":["other"]},"spec":{"target":"EAST","state":"Active"}}`
		letGo    = `[{"op":"test","path":"/metadata/uid","value":"UID"},{"op":"test","path":"/metadata/finalizers/0","value":"workload.kcp.io/syncer"},{"op":"remove","path":"/metadata/finalizers/0"}]`
	)
	cases := map[string]struct {
		method, path, contentType, body string
		wantCode                        int
		// want is the body that reaches the API where the write is allowed; empty for
		// the one that was sent.
		want string
	}{
		"create a pod":                    {"POST", core + "ns/pods", jsonType, own, 200, ""},
		"create a replica set":            {"POST", apps + "ns/replicasets", jsonType, own, 200, ""},
		"create a user's replica set":     {"POST", apps + "ns/replicasets", jsonType, `{"metadata":{"name":"new-E"}}`, 403, ""},
		"change another's replica set":    {"DELETE", apps + "ns/replicasets/web-W", "", "", 403, ""},
		"scale its own replica set":       {"PUT", apps + "ns/replicasets/web-E/scale", jsonType, own, 405, ""},
		"create another target's pod":     {"POST", core + "ns/pods", jsonType, `{"metadata":{"name":"new-E","labels":{"workload.kcp.io/target":"WEST"}}}`, 403, ""},
		"create a user's pod":             {"POST", core + "ns/pods", jsonType, `{"metadata":{"name":"new-E"}}`, 403, ""},
		"create a pod under a bad name":   {"POST", core + "ns/pods", jsonType, `{"metadata":{"name":"new","labels":{"workload.kcp.io/target":"EAST"}}}`, 403, ""},
		"create a pod of generated name":  {"POST", core + "ns/pods", jsonType, `{"metadata":{"generateName":"new","labels":{"workload.kcp.io/target":"EAST"}}}`, 403, ""},
		"create a pod of two labels":      {"POST", core + "ns/pods", jsonType, `{"metadata":{"name":"new-E","labels":{"workload.kcp.io/target":"WEST"},"labels":{"workload.kcp.io/target":"EAST"}}}`, 200, own},
		"create a pod, not assigned":      {"POST", core + "private/pods", jsonType, own, 403, ""},
		"create a pod, assigned before":   {"POST", core + "left/pods", jsonType, own, 403, ""},
		"create a pod in another cluster": {"POST", "/clusters/c2/api/v1/namespaces/ns/pods", jsonType, own, 403, ""},
		"create a pod as YAML":            {"POST", core + "ns/pods", "application/yaml", own, 415, ""},
		"create a pod as protobuf":        {"POST", core + "ns/pods", "application/vnd.kubernetes.protobuf", own, 415, ""},
		"create a binding":                {"POST", core + "ns/pods/web-E/binding", jsonType, `{}`, 405, ""},
		"evict":                           {"POST", core + "ns/pods/web-E/eviction", jsonType, `{}`, 405, ""},
		"update a pod": {
			"PUT", core + "ns/pods/web-E", jsonType, `{"metadata":{"name":"web-E","labels":{"workload.kcp.io/target":"EAST"}}}`, 200,
			`{"metadata":{"name":"web-E","uid":"UID","labels":{"workload.kcp.io/target":"EAST"}}}`,
		},
		"update a pod of another uid":    {"PUT", core + "ns/pods/web-E", jsonType, `{"metadata":{"name":"web-E","uid":"x","labels":{"workload.kcp.io/target":"EAST"}}}`, 409, ""},
		"take the label off by update":   {"PUT", core + "ns/pods/web-E", jsonType, `{"metadata":{"name":"web-E"}}`, 403, ""},
		"take over a user's pod":         {"PUT", core + "ns/pods/users-E", jsonType, `{"metadata":{"name":"users-E","labels":{"workload.kcp.io/target":"EAST"}}}`, 403, ""},
		"take over another target's pod": {"PUT", core + "ns/pods/web-W", jsonType, `{"metadata":{"name":"web-W","labels":{"workload.kcp.io/target":"EAST"}}}`, 403, ""},
		"update a pod that is not there": {"PUT", core + "ns/pods/no-E", jsonType, `{"metadata":{"name":"no-E","labels":{"workload.kcp.io/target":"EAST"}}}`, 404, ""},
		"patch a pod's status":           {"PATCH", core + "ns/pods/web-E/status", merge, `{"status":{"phase":"Running"}}`, 200, `{"metadata":{"uid":"UID"},"status":{"phase":"Running"}}`},
		"patch a user's pod's status":    {"PATCH", core + "ns/pods/users/status", merge, `{"status":{"phase":"Running"}}`, 403, ""},
		"patch another target's pod":     {"PATCH", core + "ns/pods/web-W", merge, `{"metadata":{"annotations":{"a":"b"}}}`, 403, ""},
		"patch the label":                {"PATCH", core + "ns/pods/web-E", merge, `{"metadata":{"labels":{"workload.kcp.io/target":"WEST"}}}`, 403, ""},
		"patch the label away":           {"PATCH", core + "ns/pods/web-E", merge, `{"metadata":{"labels":{"workload.kcp.io/target":null}}}`, 403, ""},
		"patch all labels away":          {"PATCH", core + "ns/pods/web-E", merge, `{"metadata":{"labels":null}}`, 403, ""},
		"patch the metadata away":        {"PATCH", core + "ns/pods/web-E", merge, `{"metadata":null}`, 403, ""},
		"patch with a list":              {"PATCH", core + "ns/pods/web-E", merge, `[]`, 400, ""},
		"patch as JSON patch":            {"PATCH", core + "ns/pods/web-E", "application/json-patch+json", `[{"op":"remove","path":"/metadata/labels"}]`, 415, ""},
		"patch strategically":            {"PATCH", core + "ns/pods/web-E", "application/strategic-merge-patch+json", `{}`, 415, ""},
		"patch ephemeral containers":     {"PATCH", core + "ns/pods/web-E/ephemeralcontainers", merge, `{}`, 405, ""},
		"apply a pod":                    {"PATCH", core + "ns/pods/web-E", apply, "metadata:\n  labels:\n    workload.kcp.io/target: EAST\n", 200, `{"metadata":{"uid":"UID","labels":{"workload.kcp.io/target":"EAST"}}}`},
		"apply a new pod":                {"PATCH", core + "ns/pods/new-E", apply, own, 200, own},
		"apply a new pod, not own":       {"PATCH", core + "ns/pods/new-E", apply, `{"metadata":{"name":"new-E"}}`, 403, ""},
		"apply without the label":        {"PATCH", core + "ns/pods/web-E", apply, `{"metadata":{"name":"web-E"}}`, 403, ""},
		"apply over a user's pod":        {"PATCH", core + "ns/pods/users-E", apply, `{"metadata":{"labels":{"workload.kcp.io/target":"EAST"}}}`, 403, ""},
		"delete a pod":                   {"DELETE", core + "ns/pods/web-E", "", "", 200, `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"UID"}}`},
		"delete a pod at once":           {"DELETE", core + "ns/pods/web-E?gracePeriodSeconds=0", "", "", 200, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"uid":"UID"}}`},
		"delete a pod with options":      {"DELETE", core + "ns/pods/web-E", jsonType, `{"propagationPolicy":"Background"}`, 200, `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background","preconditions":{"uid":"UID"}}`},
		"delete a pod of another uid":    {"DELETE", core + "ns/pods/web-E", jsonType, `{"preconditions":{"uid":"x"}}`, 409, ""},
		"delete a pod that was left":     {"DELETE", core + "left/pods/web-E", "", "", 200, `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"UID"}}`},
		"delete another target's pod":    {"DELETE", core + "ns/pods/web-W", "", "", 403, ""},
		"delete a user's pod":            {"DELETE", core + "ns/pods/users", "", "", 403, ""},
		"delete all pods":                {"DELETE", core + "ns/pods", "", "", 405, ""},
		"write a config map":             {"POST", core + "ns/configmaps", jsonType, `{"metadata":{"name":"x"}}`, 405, ""},
		"write a service's status":       {"PATCH", core + "ns/services/web/status", merge, `{}`, 405, ""},
		"write a namespace":              {"POST", "/clusters/c1/api/v1/namespaces", jsonType, `{"metadata":{"name":"x"}}`, 404, ""},
		"write all clusters":             {"POST", "/clusters/*/api/v1/namespaces/ns/pods", jsonType, own, 405, ""},
		"create an event":                {"POST", core + "ns/events", jsonType, `{"metadata":{"name":"x"}}`, 200, ""},
		"create an event, not assigned":  {"POST", core + "private/events", jsonType, `{"metadata":{"name":"x"}}`, 403, ""},
		"count an event up":              {"PATCH", core + "ns/events/e", merge, `{"count":2}`, 200, `{"count":2,"metadata":{"uid":"UID"}}`},
		"delete an event":                {"DELETE", core + "ns/events/e", "", "", 405, ""},
		"create a report":                {"POST", reports + "ns/syncreports", jsonType, report, 200, ""},
		"create another target's report": {"POST", reports + "ns/syncreports", jsonType, `{"metadata":{"name":"EAST-new"},"spec":{"target":"WEST"}}`, 403, ""},
		"create a report under its name": {"POST", reports + "ns/syncreports", jsonType, `{"metadata":{"name":"WEST-new"},"spec":{"target":"EAST"}}`, 403, ""},
		"create a report with its label": {"POST", reports + "ns/syncreports", jsonType, `{"metadata":{"name":"EAST-new","labels":{"workload.kcp.io/target":"WEST"}},"spec":{"target":"EAST"}}`, 403, ""},
		"create a report on assignments": {"POST", reports + "ns/syncreports", jsonType, `{"metadata":{"name":"EAST-new"},"spec":{"target":"EAST","group":"scheduling.kcp.io","version":"v1alpha1","resource":"assignments"}}`, 403, ""},
		"create a report on nothing":     {"POST", reports + "ns/syncreports", jsonType, `{"metadata":{"name":"EAST-new"},"spec":{"target":"EAST","group":"apps","version":"v2","resource":"deployments"}}`, 403, ""},
		"patch a report's resource":      {"PATCH", reports + "ns/syncreports/EAST-web", merge, `{"spec":{"resource":"replicasets"}}`, 403, ""},
		"create a report, not assigned":  {"POST", reports + "private/syncreports", jsonType, report, 403, ""},
		"patch a report":                 {"PATCH", reports + "ns/syncreports/EAST-web", merge, `{"report":{"synced":true}}`, 200, `{"metadata":{"uid":"UID"},"report":{"synced":true}}`},
		"patch a report's target":        {"PATCH", reports + "ns/syncreports/EAST-web", merge, `{"spec":{"target":"WEST"}}`, 403, ""},
		"patch another target's report":  {"PATCH", reports + "ns/syncreports/WEST-web", merge, `{"report":{"synced":true}}`, 403, ""},
		"apply a report":                 {"PATCH", reports + "ns/syncreports/EAST-new", apply, report, 200, report},
		"delete another target's report": {"DELETE", reports + "ns/syncreports/WEST-web", "", "", 403, ""},
		"delete another target's slice":  {"DELETE", slices + "ns/endpointslices/web-W", "", "", 403, ""},
		"apply a slice":                  {"PATCH", slices + "ns/endpointslices/new-E", apply, own, 200, own},
		"create an assignment":           {"POST", assigns + "private/assignments", jsonType, `{"metadata":{"name":"EAST"},"spec":{"target":"EAST"}}`, 405, ""},
		"delete an assignment":           {"DELETE", assigns + "ns/assignments/EAST", "", "", 405, ""},
		"let go of an assignment":        {"PATCH", assigns + "ns/assignments/EAST", merge, `{"metadata":{"finalizers":["other"]}}`, 200, letGo},
		"let go by update":               {"PUT", assigns + "ns/assignments/EAST", jsonType, released, 200, letGo},
		"update an assignment's spec":    {"PUT", assigns + "ns/assignments/EAST", jsonType, strings.Replace(released, "Active", "Draining", 1), 403, ""},
		"let go of another's assignment": {"PATCH", assigns + "ns/assignments/WEST", merge, `{"metadata":{"finalizers":["other"]}}`, 403, ""},
		"take off all finalizers":        {"PATCH", assigns + "ns/assignments/EAST", merge, `{"metadata":{"finalizers":null}}`, 403, ""},
		"let go and change the spec":     {"PATCH", assigns + "ns/assignments/EAST", merge, `{"metadata":{"finalizers":["other"]},"spec":{"state":"Draining"}}`, 403, ""},
		"let go and label":               {"PATCH", assigns + "ns/assignments/EAST", merge, `{"metadata":{"finalizers":["other"],"labels":{"a":"b"}}}`, 403, ""},
		"let go of an older one":         {"PATCH", assigns + "ns/assignments/EAST", merge, `{"metadata":{"resourceVersion":"1","finalizers":["other"]}}`, 409, ""},
		"let go by apply":                {"PATCH", assigns + "ns/assignments/EAST", apply, `{"metadata":{"finalizers":["other"]}}`, 415, ""},
		"change an assignment's status":  {"PATCH", assigns + "ns/assignments/EAST/status", merge, `{"status":{"phase":"Serving"}}`, 405, ""},
		"traverse":                       {"PATCH", core + "ns/pods/..", merge, `{}`, 400, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := len(w.recordedWrites())
			code, answer := w.do(tc.method, fill(east.base+tc.path), tc.contentType, w.fill(fill(tc.body), fill(tc.path)))
			if code != tc.wantCode {
				t.Fatalf("got %d %v, want %d", code, answer, tc.wantCode)
			}
			writes := w.recordedWrites()[before:]
			if tc.wantCode != 200 {
				if len(writes) != 0 {
					t.Errorf("refused, but reached the API: %v", writes)
				}
				if answer["kind"] != "Status" || answer["message"] == "" {
					t.Errorf("answer %v is no Status with a message", answer)
				}
				return
			}
			if len(writes) != 1 {
				t.Fatalf("reached the API: %v, want once", writes)
			}
			got := writes[0]
			want := tc.want
			if want == "" {
				want = tc.body
			}
			path, _, _ := strings.Cut(strings.TrimPrefix(tc.path, "/clusters/c1"), "?")
			wantType := tc.contentType
			if wantType == "" {
				wantType = jsonType
			}
			method := tc.method
			if want == letGo {
				method, wantType = "PATCH", "application/json-patch+json"
			}
			wantWrite := recorded{Cluster: "c1", Method: method, Path: fill(path), ContentType: wantType, User: "syncer-1", Body: w.decode(t, fill(want), got.Path)}
			if diff := cmp.Diff(wantWrite, got); diff != "" {
				t.Errorf("reached the API as (-want +got):\n%s", diff)
			}
		})
	}
}

// decode parses a wanted body, in which UID and RV stand for those of the object that
// path names.
func (w *world) decode(t *testing.T, body, path string) any {
	t.Helper()
	return parseAny(t, w.fill(body, path))
}

func (w *world) fill(body, path string) string {
	parts := strings.Split(path, "/namespaces/")
	if len(parts) == 2 {
		segments := strings.Split(parts[1], "/")
		if len(segments) > 2 {
			w.mu.Lock()
			if o, ok := w.objects[segments[1]][logicalcluster.Key{Cluster: "c1", Namespace: segments[0], Name: segments[2]}]; ok {
				body = strings.NewReplacer(`"UID"`, fmt.Sprintf("%q", o.GetUID()), `"RV"`, fmt.Sprintf("%q", o.GetResourceVersion())).Replace(body)
			}
			w.mu.Unlock()
		}
	}
	return body
}

// TestSyncerReads reads single objects.
func TestSyncerReads(t *testing.T) {
	w, east, west := writeWorld(t)
	w.put("configmaps", obj("ConfigMap", "c1", "private", "a"))
	fill := strings.NewReplacer("EAST", east.key, "WEST", west.key, "-E", suffix(east), "-W", suffix(west)).Replace
	for path, want := range map[string]int{
		"/clusters/c1/api/v1/namespaces/ns/configmaps/a":                                200,
		"/clusters/c1/api/v1/namespaces/private/configmaps/a":                           404,
		"/clusters/c1/api/v1/namespaces/ns/configmaps/none":                             404,
		"/clusters/c1/api/v1/namespaces/ns/pods/users":                                  200,
		"/clusters/c1/api/v1/namespaces/ns/pods/web-E":                                  200,
		"/clusters/c1/api/v1/namespaces/left/pods/web-E":                                200,
		"/clusters/c1/api/v1/namespaces/ns/pods/web-W":                                  404,
		"/clusters/c1/api/v1/namespaces/ns/pods/web-E/log":                              405,
		"/clusters/c1/apis/workload.kcp.io/v1alpha1/namespaces/ns/syncreports/EAST-web": 200,
		"/clusters/c1/apis/workload.kcp.io/v1alpha1/namespaces/ns/syncreports/WEST-web": 404,
		"/clusters/c1/apis/scheduling.kcp.io/v1alpha1/namespaces/ns/assignments/EAST":   200,
		"/clusters/c1/apis/scheduling.kcp.io/v1alpha1/namespaces/ns/assignments/WEST":   404,
		"/clusters/c1/api/v1/namespaces/ns/events/e":                                    405,
		"/clusters/compute/apis/workload.kcp.io/v1alpha1/synctargets/west":              404,
		"/clusters/*/api/v1/namespaces/ns/configmaps/a":                                 405,
		"/clusters/UPPER/api/v1/namespaces/ns/configmaps/a":                             404,
		"/clusters/c1/api/v1/namespaces/ns":                                             404,
		"/clusters/c1/clusters/c2/api/v1/namespaces/ns/configmaps/a":                    404,
		"/nothing": 404,
	} {
		if code, answer := w.do("GET", fill(east.base+path), "", ""); code != want {
			t.Errorf("GET %s: %d %v, want %d", path, code, answer, want)
		}
	}
}

func TestHeartbeat(t *testing.T) {
	w := newWorld(t)
	east := w.register("east")
	w.register("west")
	own := east.base + "/apis/workload.kcp.io/v1alpha1/synctargets/east"
	if code, st := w.do("GET", own, "", ""); code != 200 || st["kind"] != "SyncTarget" {
		t.Errorf("GET of the own SyncTarget: %d %v", code, st)
	}
	cases := map[string]struct {
		path, contentType, body string
		wantCode                int
	}{
		"heartbeat":              {own + "/status", merge, `{"status":{"lastSyncerHeartbeatTime":"2026-01-01T00:00:00Z","syncerVersion":"v1","kubernetesVersion":"v1.37.2","capacity":{"cpu":"4"},"allocatable":{"cpu":"4"}}}`, 200},
		"without a time":         {own + "/status", merge, `{"status":{"syncerVersion":"v1"}}`, 200},
		"conditions":             {own + "/status", merge, `{"status":{"syncerVersion":"v1","conditions":[]}}`, 403},
		"drain":                  {own + "/status", merge, `{"status":{"drain":null}}`, 403},
		"spec":                   {own + "/status", merge, `{"spec":{"unschedulable":false},"status":{"syncerVersion":"v1"}}`, 403},
		"whole status away":      {own + "/status", merge, `{"status":null}`, 403},
		"apply":                  {own + "/status", apply, `{"status":{"syncerVersion":"v1"}}`, 415},
		"not the status":         {own, merge, `{"status":{"syncerVersion":"v1"}}`, 404},
		"another target":         {east.base + "/apis/workload.kcp.io/v1alpha1/synctargets/west/status", merge, `{"status":{"syncerVersion":"v1"}}`, 404},
		"in the target's folder": {east.base + "/clusters/compute/apis/workload.kcp.io/v1alpha1/synctargets/east/status", merge, `{"status":{}}`, 404},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := len(w.recordedWrites())
			code, answer := w.do("PATCH", tc.path, tc.contentType, tc.body)
			if code != tc.wantCode {
				t.Fatalf("got %d %v, want %d", code, answer, tc.wantCode)
			}
			writes := w.recordedWrites()[before:]
			if tc.wantCode != 200 {
				if len(writes) != 0 {
					t.Errorf("refused, but reached the API: %v", writes)
				}
				return
			}
			body := parseJSON(t, tc.body)
			body["status"].(map[string]any)["syncProtocol"] = float64(version.SyncProtocol)
			body["status"].(map[string]any)["lastSyncerHeartbeatTime"] = "2030-01-01T00:00:00Z"
			body["metadata"] = map[string]any{"uid": east.base[strings.LastIndex(east.base, "/")+1:]}
			want := []recorded{{Cluster: "compute", Method: "PATCH", Path: "/apis/workload.kcp.io/v1alpha1/synctargets/east/status", ContentType: merge, User: "syncer-1", Body: body}}
			if diff := cmp.Diff(want, writes); diff != "" {
				t.Errorf("reached the API as (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGatewayWrites(t *testing.T) {
	w := newWorld(t)
	w.put("gatewayreports", obj("GatewayReport", "c1", "ns", "g1"))
	for name, tc := range map[string]struct {
		method, path, contentType string
		wantCode                  int
	}{
		"create a report":          {"POST", "/clusters/c1/apis/networking.kcp.io/v1alpha1/namespaces/ns/gatewayreports", jsonType, 200},
		"patch a report":           {"PATCH", "/clusters/c1/apis/networking.kcp.io/v1alpha1/namespaces/ns/gatewayreports/g1", merge, 200},
		"apply a report":           {"PATCH", "/clusters/c1/apis/networking.kcp.io/v1alpha1/namespaces/ns/gatewayreports/g2", apply, 200},
		"apply an instance":        {"PATCH", "/clusters/root/apis/networking.kcp.io/v1alpha1/gatewayinstances/g1", apply, 200},
		"an instance elsewhere":    {"PATCH", "/clusters/c1/apis/networking.kcp.io/v1alpha1/gatewayinstances/g1", apply, 403},
		"an assignment":            {"PATCH", "/clusters/c1/apis/scheduling.kcp.io/v1alpha1/namespaces/ns/assignments/t", merge, 405},
		"an ingress":               {"PATCH", "/clusters/c1/apis/networking.k8s.io/v1/namespaces/ns/ingresses/i/status", merge, 405},
		"a syncer's report":        {"POST", "/clusters/c1/apis/workload.kcp.io/v1alpha1/namespaces/ns/syncreports", jsonType, 404},
		"an unnamespaced report":   {"POST", "/clusters/c1/apis/networking.kcp.io/v1alpha1/gatewayreports", jsonType, 405},
		"a report of all clusters": {"POST", "/clusters/*/apis/networking.kcp.io/v1alpha1/namespaces/ns/gatewayreports", jsonType, 405},
	} {
		t.Run(name, func(t *testing.T) {
			if code, answer := w.do(tc.method, "/services/gateway"+tc.path, tc.contentType, `{"spec":{}}`, pki.GatewayGroup); code != tc.wantCode {
				t.Errorf("got %d %v, want %d", code, answer, tc.wantCode)
			}
		})
	}
	if code, _ := w.do("POST", "/services/gateway/clusters/c1/apis/networking.kcp.io/v1alpha1/namespaces/ns/gatewayreports", jsonType, `{}`); code != 403 {
		t.Errorf("write by a user who is no gateway: %d, want 403", code)
	}
}

// TestGatewayRenewal: when a gateway was heard is the server's to say.
func TestGatewayRenewal(t *testing.T) {
	w := newWorld(t)
	w.put("gatewayinstances", obj("GatewayInstance", "root", "", "g1"))
	const at = "/services/gateway/clusters/root/apis/networking.kcp.io/v1alpha1/gatewayinstances"
	for name, tc := range map[string]struct{ method, path, contentType, body, want string }{
		"create": {"POST", at, jsonType, `{"metadata":{"name":"g2"},"spec":{"renewTime":"2099-01-01T00:00:00.000000Z","leaseDurationSeconds":15}}`, "2030-01-01T00:00:00.123456Z"},
		"patch":  {"PATCH", at + "/g1", merge, `{"spec":{"renewTime":"1999-01-01T00:00:00.000000Z"}}`, "2030-01-01T00:00:00.123456Z"},
		"apply":  {"PATCH", at + "/g1", apply, `{"spec":{"renewTime":7}}`, "2030-01-01T00:00:00.123456Z"},
		// What is no renewal does not become one.
		"addresses only": {"PATCH", at + "/g1", merge, `{"spec":{"addresses":["192.0.2.1"]}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(w.recordedWrites())
			if code, answer := w.do(tc.method, tc.path, tc.contentType, tc.body, pki.GatewayGroup); code != 200 {
				t.Fatalf("got %d %v", code, answer)
			}
			writes := w.recordedWrites()[before:]
			if len(writes) != 1 {
				t.Fatalf("writes %v, want one", writes)
			}
			got, _, _ := unstructured.NestedString(writes[0].Body.(map[string]any), "spec", "renewTime")
			if got != tc.want {
				t.Errorf("renewTime %q, want %q", got, tc.want)
			}
		})
	}
}

func TestMergePatch(t *testing.T) {
	for name, tc := range map[string]struct{ target, patch, want string }{
		"set":                      {`{"a":1}`, `{"b":2}`, `{"a":1,"b":2}`},
		"replace":                  {`{"a":1}`, `{"a":[2]}`, `{"a":[2]}`},
		"remove":                   {`{"a":1,"b":2}`, `{"a":null}`, `{"b":2}`},
		"nested":                   {`{"a":{"b":1,"c":2}}`, `{"a":{"b":null,"d":3}}`, `{"a":{"c":2,"d":3}}`},
		"object over a scalar":     {`{"a":1}`, `{"a":{"b":null,"c":1}}`, `{"a":{"c":1}}`},
		"nulls in what is new":     {`{}`, `{"a":{"b":{"c":null}}}`, `{"a":{"b":{}}}`},
		"scalar over an object":    {`{"a":{"b":1}}`, `{"a":1}`, `{"a":1}`},
		"list is replaced as such": {`{"a":[1,2]}`, `{"a":[3]}`, `{"a":[3]}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := mergePatch(parseJSON(t, tc.target), parseJSON(t, tc.patch))
			if diff := cmp.Diff(parseJSON(t, tc.want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
