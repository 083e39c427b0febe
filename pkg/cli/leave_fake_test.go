package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

func init() {
	for resource, kind := range map[string]string{
		"placements": "Placement", "assignments": "Assignment", "syncreports": "SyncReport", "gatewayreports": "GatewayReport",
	} {
		kinds[resource] = kind
	}
	// put PATH RESOURCE FILE: the YAML documents of the file become objects of the server.
	scriptCommands["put"] = func(ts *testscript.TestScript, _ bool, args []string) {
		for _, doc := range strings.Split(ts.ReadFile(args[2]), "---\n") {
			obj := object{}
			ts.Check(yaml.Unmarshal([]byte(doc), &obj))
			fakeOf(ts).put(args[0], args[1], obj)
		}
	}
	// physical FILE KEY: start a physical cluster in which the syncer of a target with that
	// key has made two namespaces, one of them long ago, and write a kubeconfig for it.
	scriptCommands["physical"] = func(ts *testscript.TestScript, _ bool, args []string) {
		p := newPhysical(args[1])
		ts.Defer(p.server.Close)
		kubeconfig := "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: '" + p.server.URL + "'}}], users: [{name: u}], contexts: [{name: c, context: {cluster: c, user: u}}]}"
		ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(kubeconfig), 0o600))
		fakeOf(ts).files.Store("physical", p)
	}
	// deleted FILE: what was deleted from the physical cluster, in order, is in the file.
	scriptCommands["deleted"] = func(ts *testscript.TestScript, _ bool, args []string) {
		p, _ := fakeOf(ts).files.Load("physical")
		got := strings.Join(p.(*physical).deleted, "\n") + "\n"
		if want := ts.ReadFile(args[0]); want != got {
			ts.Fatalf("deleted from the physical cluster:\n%swant:\n%s", got, want)
		}
	}
	// gone PATH RESOURCE NAME: there is no such object; with !, there is one.
	scriptCommands["gone"] = func(ts *testscript.TestScript, neg bool, args []string) {
		if gone := fakeOf(ts).get(args[0], args[1], args[2]) == nil; gone == neg {
			ts.Fatalf("%s %s in %s is gone: %v", args[1], args[2], args[0], gone)
		}
	}
	// expand FILE: put the value of KEY where the file says $KEY.
	scriptCommands["expand"] = func(ts *testscript.TestScript, _ bool, args []string) {
		file := ts.MkAbs(args[0])
		ts.Check(os.WriteFile(file, []byte(strings.ReplaceAll(ts.ReadFile(file), "$KEY", ts.Getenv("KEY"))), 0o600))
	}
	// targetkey NAME [PATH]: set KEY to the key of a sync target, of root:compute if no path
	// is given.
	scriptCommands["targetkey"] = func(ts *testscript.TestScript, _ bool, args []string) {
		path := append(args, "root:compute")[1]
		uid := fakeOf(ts).get(path, "synctargets", args[0])["metadata"].(object)["uid"].(string)
		ts.Setenv("KEY", workloadv1alpha1.TargetKey(logicalcluster.Name(idOf(path)), types.UID(uid)))
	}
}

// physical is the API server of a physical cluster: objects by path, which stay for one
// more look after they were deleted.
type physical struct {
	server  *httptest.Server
	objects map[string]object
	going   map[string]bool
	deleted []string
}

func newPhysical(key string) *physical {
	p := &physical{objects: map[string]object{}, going: map[string]bool{}}
	add := func(path, name string, labels object) {
		p.objects[path+"/"+name] = object{"apiVersion": "v1", "kind": "Thing", "metadata": object{"name": name, "uid": "uid-" + name, "labels": labels}}
	}
	own := "kcp-syncer-" + key
	add("/api/v1/namespaces", own, nil)
	add("/api/v1/namespaces", "kcp-0123456789abcdefghij", object{"workload.kcp.io/syncer": key})
	add("/api/v1/namespaces", "shop", object{"workload.kcp.io/syncer": key}) // labelled by somebody, not made by a syncer
	add("/api/v1/namespaces", "kcp-9999999999abcdefghij", object{"workload.kcp.io/syncer": "another"})
	add("/apis/rbac.authorization.k8s.io/v1/clusterroles", own, nil)
	add("/apis/rbac.authorization.k8s.io/v1/clusterroles", own+"-data", nil)
	add("/apis/rbac.authorization.k8s.io/v1/clusterroles", "admin", nil)
	add("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", own, nil)
	add("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", own, nil)
	add("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", own, nil)
	p.server = httptest.NewServer(http.HandlerFunc(p.serve))
	return p
}

func (p *physical) serve(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if selector := r.URL.Query().Get("labelSelector"); selector != "" {
		key, value, _ := strings.Cut(selector, "=")
		items := []object{}
		for at, obj := range p.objects {
			labels, _ := obj["metadata"].(object)["labels"].(object)
			if strings.HasPrefix(at, path+"/") && labels[key] == value {
				items = append(items, obj)
			}
		}
		reply(w, http.StatusOK, object{"apiVersion": "v1", "kind": "ThingList", "metadata": object{}, "items": items})
		return
	}
	obj := p.objects[path]
	if obj == nil {
		status(w, http.StatusNotFound, "NotFound", path+" not found")
		return
	}
	if r.Method == http.MethodDelete {
		body, _ := io.ReadAll(r.Body)
		var options struct{ Preconditions struct{ UID string } }
		_ = json.Unmarshal(body, &options)
		if uid := options.Preconditions.UID; uid != "" && uid != obj["metadata"].(object)["uid"] {
			status(w, http.StatusConflict, "Conflict", "another uid")
			return
		}
		p.deleted = append(p.deleted, path)
		p.going[path] = true
	} else if p.going[path] {
		delete(p.objects, path)
	}
	reply(w, http.StatusOK, obj)
}
