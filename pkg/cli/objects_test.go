package cli_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// object is an API object, or a part of one.
type object = map[string]any

type event struct {
	Type   string `json:"type"`
	Object object `json:"object"`
}

var kinds = map[string]string{
	"workspaces": "Workspace", "workspacetypes": "WorkspaceType", "logicalclusters": "LogicalCluster", "synctargets": "SyncTarget", "locations": "Location", "placements": "Placement",
	"namespaces": "Namespace", "serviceaccounts": "ServiceAccount", "clusterroles": "ClusterRole", "clusterrolebindings": "ClusterRoleBinding",
}

func idOf(path string) string {
	if path == "root" {
		return path
	}
	sum := sha256.Sum256([]byte(path))
	return "c" + hex.EncodeToString(sum[:])[:15]
}

// seed makes the workspaces that scripts find: root, root:compute, root:org:team,
// root:private (entered by the admin alone), root:users.
func (f *fake) seed() error {
	for _, path := range []string{"root", "root:compute", "root:org", "root:org:team", "root:private", "root:users"} {
		f.addWorkspace(path, "universal")
	}
	for name, serverOnly := range map[string]bool{"universal": false, "special": false, "home": true} {
		f.put("root", "workspacetypes", object{
			"apiVersion": "tenancy.kcp.io/v1alpha1", "metadata": object{"name": name}, "spec": object{"serverOnly": serverOnly},
		})
	}
	f.put("root:org", "workspacetypes", object{"apiVersion": "tenancy.kcp.io/v1alpha1", "metadata": object{"name": "service"}})
	f.put("root:org:team", "locations", object{
		"apiVersion": "scheduling.kcp.io/v1alpha1",
		"metadata":   object{"name": "default", "annotations": object{"kcp.io/path": "root"}},
		"spec":       object{"description": "everywhere"},
		"status":     object{"instances": 2, "availableInstances": 1},
	})
	return nil
}

func (f *fake) addWorkspace(path, typ string) {
	if f.get(path, "logicalclusters", "cluster") != nil {
		return
	}
	f.put(path, "logicalclusters", object{
		"apiVersion": "core.kcp.io/v1alpha1",
		"metadata":   object{"name": "cluster", "annotations": object{"kcp.io/path": path}},
		"status":     object{"phase": "Ready"},
	})
	if i := strings.LastIndexByte(path, ':'); i > 0 && f.get(path[:i], "workspaces", path[i+1:]) == nil {
		f.put(path[:i], "workspaces", object{
			"apiVersion": "tenancy.kcp.io/v1alpha1",
			"metadata":   object{"name": path[i+1:]},
			"spec":       object{"type": object{"name": typ}, "cluster": idOf(path), "URL": f.url + "/clusters/" + path},
			"status":     object{"phase": "Ready"},
		})
	}
}

func (f *fake) get(path, resource, name string) object {
	f.mu.Lock()
	defer f.mu.Unlock()
	obj := f.objects[path+"/"+resource+"/"+name]
	if obj == nil {
		return nil
	}
	return clone(obj)
}

// put stores an object and tells watchers.
func (f *fake) put(path, resource string, obj object) object {
	f.mu.Lock()
	defer f.mu.Unlock()
	meta := obj["metadata"].(object)
	key := path + "/" + resource + "/" + meta["name"].(string)
	f.revision++
	typ := "MODIFIED"
	if f.objects[key] == nil {
		typ = "ADDED"
		meta["uid"] = fmt.Sprintf("uid-%d", f.revision)
		if meta["creationTimestamp"] == nil {
			meta["creationTimestamp"] = time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
		}
	}
	meta["resourceVersion"] = strconv.Itoa(f.revision)
	obj["kind"] = kinds[resource]
	annotations, _ := meta["annotations"].(object)
	if annotations == nil {
		annotations = object{}
		meta["annotations"] = annotations
	}
	annotations["kcp.io/cluster"] = idOf(path)
	f.objects[key] = clone(obj)
	for w, watched := range f.watchers {
		if watched == key {
			w <- event{typ, clone(obj)}
		}
	}
	return clone(obj)
}

func (f *fake) list(path, resource string) []object {
	f.mu.Lock()
	defer f.mu.Unlock()
	items := []object{}
	for key, obj := range f.objects {
		if strings.HasPrefix(key, path+"/"+resource+"/") {
			items = append(items, clone(obj))
		}
	}
	sort.Slice(items, func(i, j int) bool { return nameOf(items[i]) < nameOf(items[j]) })
	return items
}

func nameOf(obj object) string { return obj["metadata"].(object)["name"].(string) }

func clone(obj object) object {
	data, err := json.Marshal(obj)
	must(func() error { return err })
	var out object
	must(func() error { return json.Unmarshal(data, &out) })
	return out
}

// target is what a URL below /clusters/<path> asks for.
type target struct {
	path, resource, name, subresource string
	gv                                schema.GroupVersion
}

func parse(urlPath string) target {
	urlPath = strings.TrimPrefix(strings.TrimPrefix(urlPath, "/services/locations"), "/clusters/")
	parts := strings.Split(urlPath, "/")
	t := target{path: parts[0]}
	if len(parts) < 3 {
		return t
	}
	rest := parts[2:]
	if parts[1] == "apis" {
		t.gv.Group, rest = rest[0], rest[1:]
	}
	t.gv.Version, rest = rest[0], rest[1:]
	if len(rest) > 2 && rest[0] == "namespaces" {
		rest = rest[2:]
	}
	rest = append(rest, "", "", "")
	t.resource, t.name, t.subresource = rest[0], rest[1], rest[2]
	return t
}

func (f *fake) serveObjects(w http.ResponseWriter, r *http.Request) {
	if f.is("objects", "hang") {
		select {
		case <-r.Context().Done():
		case <-f.ctx.Done():
		}
		return
	}
	f.mu.Lock()
	if warning := f.switches["warning"]; warning != "" {
		w.Header().Set("Warning", fmt.Sprintf("299 - %q", warning))
	}
	f.mu.Unlock()
	t := parse(r.URL.Path)
	user := userOf(r)
	unknown := f.get(t.path, "logicalclusters", "cluster") == nil
	switch {
	case unknown && f.is("unknown", "forbidden"):
		status(w, http.StatusForbidden, "Forbidden", fmt.Sprintf("access to workspace %q denied", t.path))
		return
	case unknown:
		status(w, http.StatusNotFound, "NotFound", fmt.Sprintf("workspace %q not found", t.path))
		return
	case user != "admin" && t.path == f.value("hidden"):
		status(w, http.StatusForbidden, "Forbidden", fmt.Sprintf("access to workspace %q denied", t.path))
		return
	case user != "admin" && (t.path == "root:private" || t.path == "root:users" || strings.HasPrefix(t.path+":", "root:users:") && t.path != "root:users" && !strings.HasPrefix(t.path+":", "root:users:"+user+":")):
		status(w, http.StatusForbidden, "Forbidden", fmt.Sprintf("access to workspace %q denied", t.path))
		return
	case user != "admin" && t.path == "root:org:team" && t.resource == "logicalclusters":
		// May be entered, but the LogicalCluster may not be read.
		status(w, http.StatusForbidden, "Forbidden", "logicalclusters is forbidden")
		return
	}
	switch {
	case t.resource == "selfsubjectreviews":
		reply(w, http.StatusCreated, object{"status": object{"userInfo": object{"username": "oidc:" + user}}})
	case t.resource == "selfsubjectaccessreviews":
		reply(w, http.StatusCreated, object{
			"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "status": object{"allowed": true},
		})
	case t.subresource == "token":
		f.count("token-request")
		expires := time.Now().Add(365 * 24 * time.Hour)
		if f.is("token", "short") {
			expires = time.Now().Add(time.Hour)
		}
		reply(w, http.StatusCreated, object{
			"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
			"status": object{"token": "syncer-token-" + t.name, "expirationTimestamp": expires.UTC().Format(time.RFC3339)},
		})
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		f.watch(w, r, t)
	default:
		f.serveREST(w, r, t)
	}
}

func (f *fake) serveREST(w http.ResponseWriter, r *http.Request, t target) {
	missing := func() {
		status(w, http.StatusNotFound, "NotFound", fmt.Sprintf("%s %q not found", t.resource, t.name))
	}
	switch r.Method {
	case http.MethodGet:
		if t.name == "" {
			reply(w, http.StatusOK, object{
				"apiVersion": t.gv.String(), "kind": kinds[t.resource] + "List", "metadata": object{}, "items": f.list(t.path, t.resource),
			})
			return
		}
		if obj := f.get(t.path, t.resource, t.name); obj != nil {
			reply(w, http.StatusOK, obj)
			return
		}
		missing()
	case http.MethodPost:
		obj := decode(r)
		if f.get(t.path, t.resource, nameOf(obj)) != nil {
			status(w, http.StatusConflict, "AlreadyExists", "already exists")
			return
		}
		if spec, _ := obj["spec"].(object); t.resource == "workspaces" && fmt.Sprint(spec["type"]) == "map[name:server-only]" {
			status(w, http.StatusForbidden, "Forbidden", fmt.Sprintf("workspaces.tenancy.kcp.io %q is forbidden: workspaces of type \"server-only\" are made by the server only", nameOf(obj)))
			return
		}
		f.count("create-" + t.resource)
		obj["apiVersion"] = t.gv.String()
		made := f.put(t.path, t.resource, obj)
		if t.resource == "workspaces" {
			made = f.finishWorkspace(t.path, made)
		}
		reply(w, http.StatusCreated, made)
	case http.MethodPut:
		f.count("update-" + t.resource)
		reply(w, http.StatusOK, f.put(t.path, t.resource, decode(r)))
	case http.MethodPatch:
		obj := f.get(t.path, t.resource, t.name)
		if obj == nil {
			missing()
			return
		}
		f.count("patch-" + t.resource)
		obj = clone(obj)
		merge(obj, decode(r))
		reply(w, http.StatusOK, f.put(t.path, t.resource, obj))
	case http.MethodDelete:
		f.count("delete-" + t.resource)
		if t.resource != "synctargets" || !f.is("synctarget", "stays") {
			f.mu.Lock()
			delete(f.objects, t.path+"/"+t.resource+"/"+t.name)
			f.mu.Unlock()
		}
		reply(w, http.StatusOK, object{"apiVersion": "v1", "kind": "Status", "status": "Success"})
	}
}

// finishWorkspace makes a workspace ready, or not if its name says so.
func (f *fake) finishWorkspace(parent string, ws object) object {
	if nameOf(ws) == "stuck" {
		ws["status"] = object{"phase": "Initializing", "conditions": []object{{"type": "Initialized", "status": "False", "message": "type is missing"}}}
		return f.put(parent, "workspaces", ws)
	}
	ws["status"] = object{"phase": "Ready"}
	ws = f.put(parent, "workspaces", ws)
	f.addWorkspace(parent+":"+nameOf(ws), "universal")
	return ws
}

func decode(r *http.Request) object {
	data, err := io.ReadAll(r.Body)
	must(func() error { return err })
	var obj object
	must(func() error { return json.Unmarshal(data, &obj) })
	return obj
}

// merge is RFC 7396.
func merge(into, patch object) {
	for k, v := range patch {
		sub, isObject := v.(object)
		old, wasObject := into[k].(object)
		switch {
		case v == nil:
			delete(into, k)
		case isObject && wasObject:
			merge(old, sub)
		case isObject:
			fresh := object{}
			merge(fresh, sub)
			into[k] = fresh
		default:
			into[k] = v
		}
	}
}

// watch streams the changes of one object. Each watch of a draining sync target makes
// its drain go on as the label "drain" says.
func (f *fake) watch(w http.ResponseWriter, r *http.Request, t target) {
	name := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	events := make(chan event, 100)
	f.mu.Lock()
	f.watchers[events] = t.path + "/" + t.resource + "/" + name
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, events)
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	cut := f.proceed(t.path, name)
	for {
		select {
		case <-r.Context().Done():
			return
		case <-f.ctx.Done():
			return
		case e := <-events:
			_ = json.NewEncoder(w).Encode(e)
			w.(http.Flusher).Flush()
			if cut && len(events) == 0 {
				return
			}
		}
	}
}

// proceed plays the server's part of a drain. It reports whether the watch breaks
// after that.
func (f *fake) proceed(path, name string) (cut bool) {
	obj := f.get(path, "synctargets", name)
	if obj == nil {
		return false
	}
	labels, _ := obj["metadata"].(object)["labels"].(object)
	ready := "True"
	if labels["drain"] == "abandoned" {
		ready = "False"
	}
	step := func(state string, namespaces ...object) {
		obj := clone(f.get(path, "synctargets", name))
		spec, _ := obj["spec"].(object)
		obj["status"] = object{"conditions": []object{{"type": "Ready", "status": ready}}, "drain": object{
			"state": state, "observedEvictAfter": spec["evictAfter"], "remaining": len(namespaces), "namespaces": namespaces,
		}}
		f.put(path, "synctargets", obj)
	}
	ns := func(stage, message string) object {
		return object{"workspace": "root:users:alice", "namespace": "web", "stage": stage, "message": message}
	}
	switch labels["drain"] {
	case "moves":
		f.count("watch")
		if f.counted("watch") == 1 {
			step("Draining", ns("Applying", ""), object{"workspace": "root:users:bob", "namespace": "db", "stage": "Pending"})
			return true
		}
		step("Draining", ns("WaitingForGateway", "gateway g1 has not confirmed"))
		step("Draining", ns("WaitingForGateway", "gateway g1 has not confirmed"))
		step("Draining", ns("Removing", ""))
		step("Empty")
	case "blocked":
		step("Blocked", ns("Blocked", "no other target: us-west1 is cordoned"))
	case "flickers":
		step("Blocked", ns("Blocked", "no other target: us-west1 is not ready"))
		step("Draining", ns("Applying", ""))
		step("Empty")
	case "abandoned":
		step("Draining", ns("Removing", "the target is silent; its copy is removed when it returns"))
	case "hangs":
		step("Draining", ns("WaitingForPods", "Deployment web has 1 of 2"))
	case "uncordoned":
		obj := clone(obj)
		obj["spec"] = object{}
		f.put(path, "synctargets", obj)
	}
	return false
}
