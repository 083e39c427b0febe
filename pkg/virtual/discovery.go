package virtual

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

// discover serves the discovery documents of a workspace; false if path is none.
func (ws *workspace) discover(c *call, path string) (bool, error) {
	if c.r.Method != http.MethodGet {
		return false, nil
	}
	switch path = strings.TrimSuffix(path, "/"); path {
	case "/api":
		return true, encodeJSON(c.w, metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"},
			Versions: []string{"v1"},
		})
	case "/apis":
		return true, encodeJSON(c.w, ws.groups())
	}
	for _, gv := range ws.versions() {
		p := "/apis/" + gv.String()
		if gv.Group == "" {
			p = "/api/" + gv.Version
		}
		if path == p {
			return true, encodeJSON(c.w, ws.resourceList(gv))
		}
	}
	return false, nil
}

// versions returns each group and version once, in the table's order.
func (ws *workspace) versions() []schema.GroupVersion {
	var out []schema.GroupVersion
	seen := sets.New[schema.GroupVersion]()
	for _, res := range ws.resources {
		if gv := res.gvr.GroupVersion(); !seen.Has(gv) {
			seen.Insert(gv)
			out = append(out, gv)
		}
	}
	return out
}

// groups lists the named groups. Each has one version here.
func (ws *workspace) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	for _, gv := range ws.versions() {
		if gv.Group == "" {
			continue
		}
		version := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		list.Groups = append(list.Groups, metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
	}
	return list
}

func (ws *workspace) resourceList(gv schema.GroupVersion) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, res := range ws.resources {
		if res.gvr.GroupVersion() != gv {
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name:         res.gvr.Resource,
			SingularName: strings.ToLower(res.kind),
			Namespaced:   res.namespaced,
			Kind:         res.kind,
			Verbs:        res.verbs(),
		})
	}
	return list
}

func (r *resource) verbs() metav1.Verbs {
	verbs := sets.New[string]()
	if r.audience != nil {
		verbs.Insert("get", "list", "watch")
	}
	if r.compute != nil {
		verbs.Insert("get", "list")
	}
	if r.write != nil {
		verbs = verbs.Union(r.write.verbs)
	}
	return sets.List(verbs)
}
