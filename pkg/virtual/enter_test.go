package virtual

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

func TestEnterSyncer(t *testing.T) {
	w := newWorld(t)
	east := w.register("east")
	uid := east.base[strings.LastIndex(east.base, "/")+1:]
	var asked []string
	w.allow = func(cluster logicalcluster.Name, a authorizer.Attributes) bool {
		asked = append(asked, fmt.Sprintf("%s %s %s %s.%s/%s resource=%v", a.GetUser().GetName(), cluster, a.GetVerb(), a.GetResource(), a.GetAPIGroup(), a.GetName(), a.IsResourceRequest()))
		return cluster == "compute" && (a.GetName() == "east" || a.GetName() == "gone")
	}
	refusal := func(name, cluster string) string {
		return fmt.Sprintf(`synctargets.workload.kcp.io %q is forbidden: user "syncer-1" has no verb "sync" on it in cluster %q`, name, cluster)
	}
	for name, tc := range map[string]struct {
		path        string
		wantCode    int
		wantReason  string
		wantMessage string
	}{
		"allowed":                   {"compute/east/" + uid, 200, "", ""},
		"another target":            {"compute/west/" + uid, 403, "Forbidden", refusal("west", "compute")},
		"one that does not exist":   {"compute/none/" + uid, 403, "Forbidden", refusal("none", "compute")},
		"a cluster without one":     {"nowhere/east/" + uid, 403, "Forbidden", refusal("east", "nowhere")},
		"malformed cluster":         {"*/east/" + uid, 403, "Forbidden", refusal("east", "*")},
		"allowed, of an older uid":  {"compute/east/other", 410, "Gone", `SyncTarget "east" with uid "other" does not exist in cluster "compute" (any more): register this physical cluster again`},
		"allowed, no longer there":  {"compute/gone/" + uid, 410, "Gone", `SyncTarget "gone" with uid "` + uid + `" does not exist in cluster "compute" (any more): register this physical cluster again`},
		"path without a SyncTarget": {"compute/east", 404, "NotFound", "nothing is served here: /services/syncer/compute/east"},
	} {
		t.Run(name, func(t *testing.T) {
			asked = nil
			path := "/services/syncer/" + tc.path
			if strings.Count(tc.path, "/") == 2 {
				path += configMaps
			}
			code, status := w.do("GET", path, "", "")
			if code != tc.wantCode {
				t.Fatalf("got %d %v, want %d", code, status, tc.wantCode)
			}
			if tc.wantCode == 200 {
				if diff := cmp.Diff([]string{"syncer-1 compute sync synctargets.workload.kcp.io/east resource=true"}, asked); diff != "" {
					t.Errorf("asked the authorizer (-want +got):\n%s", diff)
				}
				return
			}
			if status["reason"] != tc.wantReason || status["message"] != tc.wantMessage {
				t.Errorf("got %v %q, want %s %q", status["reason"], status["message"], tc.wantReason, tc.wantMessage)
			}
		})
	}
}

func TestLocations(t *testing.T) {
	w := newWorld(t)
	w.allow = func(cluster logicalcluster.Name, a authorizer.Attributes) bool {
		return cluster == "org" && a.GetVerb() == "access" && a.GetPath() == "/" && !a.IsResourceRequest()
	}
	const base = "/services/locations/clusters/root:org/apis/scheduling.kcp.io/v1alpha1/"
	code, list := w.do("GET", base+"locations", "", "")
	if code != 200 {
		t.Fatalf("got %d %v", code, list)
	}
	var names []string
	for _, item := range list["items"].([]any) {
		location := item.(map[string]any)
		names = append(names, fmt.Sprint(location["kind"], " ", location["apiVersion"], " ", location["metadata"].(map[string]any)["name"], " ", location["metadata"].(map[string]any)["annotations"]))
	}
	want := []string{
		"Location scheduling.kcp.io/v1alpha1 default map[kcp.io/path:root]",
		"Location scheduling.kcp.io/v1alpha1 own-of-org <nil>",
	}
	if diff := cmp.Diff(want, names); diff != "" || list["kind"] != "LocationList" || list["apiVersion"] != "scheduling.kcp.io/v1alpha1" {
		t.Errorf("list %v %v (-want +got):\n%s", list["kind"], list["apiVersion"], diff)
	}
	for path, want := range map[string]int{
		base + "locations/default": 200,
		base + "locations/none":    404,
		strings.Replace(base, "root:org", "root:other", 1) + "locations": 403,
		strings.Replace(base, "root:org", "*", 1) + "locations":          404,
		"/services/locations": 404,
		"/services/nothing":   404,
	} {
		if code, answer := w.do("GET", path, "", ""); code != want {
			t.Errorf("GET %s: %d %v, want %d", path, code, answer, want)
		}
	}
	if code, _ := w.do("POST", base+"locations", jsonType, `{}`); code != 405 {
		t.Errorf("POST: %d, want 405", code)
	}
	w.allow = func(logicalcluster.Name, authorizer.Attributes) bool { return false }
	if code, _ := w.do("GET", base+"locations", "", ""); code != 403 {
		t.Errorf("GET without access: %d, want 403", code)
	}
}

func TestDiscovery(t *testing.T) {
	w := newWorld(t)
	east := w.register("east")
	if code, version := w.do("GET", east.base+"/version", "", ""); code != 200 || version["path"] != "/version" {
		t.Errorf("version: %d %v", code, version)
	}
	_, groups := w.do("GET", east.base+"/clusters/*/apis", "", "")
	var names []string
	for _, g := range groups["groups"].([]any) {
		names = append(names, g.(map[string]any)["name"].(string))
	}
	want := []string{"scheduling.kcp.io", "workload.kcp.io", "discovery.k8s.io", "apps", "events.k8s.io", "batch", "networking.k8s.io", "policy"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	_, core := w.do("GET", east.base+"/api/v1", "", "")
	verbs := map[string]string{}
	for _, r := range core["resources"].([]any) {
		r := r.(map[string]any)
		verbs[r["name"].(string)] = fmt.Sprint(r["verbs"])
	}
	if diff := cmp.Diff(map[string]string{
		"configmaps": "[get list watch]", "events": "[create patch update]", "persistentvolumeclaims": "[get list watch]",
		"pods": "[create delete get list patch update watch]", "secrets": "[get list watch]", "serviceaccounts": "[get list watch]", "services": "[get list watch]",
	}, verbs); diff != "" {
		t.Errorf("core resources (-want +got):\n%s", diff)
	}
}
