package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/tunnel"
	"github.com/13eedeaf/kcp/pkg/version"
	"github.com/13eedeaf/kcp/test/framework"
)

// answering is the syncer's end of a tunnel.
type answering struct {
	requests atomic.Int32
}

// openTunnel opens the tunnel of an agent's SyncTarget; every request through it is
// answered with the path.
func openTunnel(t *testing.T, a *agent) (*answering, error) {
	t.Helper()
	rt, err := tunnel.Transport(a.config)
	must(t, err)
	l, err := tunnel.Open(t.Context(), rt, a.config.Host+"/tunnel")
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = l.Close() })
	out := &answering{}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out.requests.Add(1)
		_, _ = fmt.Fprint(w, r.URL.Path)
	})}
	go func() { _ = server.Serve(l) }()
	return out, nil
}

// opened opens a tunnel whose rights have only just been given, and may not be seen yet.
func opened(t *testing.T, a *agent) *answering {
	t.Helper()
	var out *answering
	framework.Eventually(t, "a tunnel of "+a.key, func(context.Context) (bool, string) {
		var err error
		out, err = openTunnel(t, a)
		return err == nil, fmt.Sprint(err)
	})
	return out
}

// TestPodsOfAnotherTenant: nobody reaches a neighbour's pods or the tunnel to them, be it by
// the pod's name in one's own workspace, in the neighbour's, or by a SyncTarget that has the
// name of another.
func TestPodsOfAnotherTenant(t *testing.T) {
	s := framework.Start(t)
	server := s.Clients(t)
	alice, bob := login(t, s, "alice"), login(t, s, "bob")
	own, ownID := alice.home()
	foreign, foreignID := bob.home()
	edge := newAgent(t, s, ownID, "edge")
	edges := opened(t, edge)
	// Bob registers a cluster of the same name, and its syncer has a tunnel too.
	forged := newAgent(t, s, foreignID, "edge")
	forgeds := opened(t, forged)
	pod := names.Mirror(edge.key, "web")
	// Without it the mirror would be cleaned up.
	assign(t, server, own, "default", edge.key)
	createAs(t, server.Core(own).Pods("default").Create, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Labels: map[string]string{workloadv1alpha1.TargetLabelKey: edge.key}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/app"}}},
	})
	at := func(cluster logicalcluster.Name, pod, rest string) string {
		return "/clusters/" + string(cluster) + "/api/v1/namespaces/default/pods/" + pod + rest
	}
	framework.Eventually(t, "the owner reads the log", func(context.Context) (bool, string) {
		r := alice.do(http.MethodGet, at(own, pod, "/log"), "")
		return r.code == http.StatusOK && r.body == "/clusters/"+string(ownID)+"/namespaces/default/pods/web/log", fmt.Sprint(r.code, r.body)
	})
	before := edges.requests.Load()

	// A pod of bob's own, as alice's syncer would name it, is a pod without a place.
	createAs(t, bob.kube(foreign).CoreV1().Pods("default").Create, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: names.Mirror(edge.key, "own")},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/app"}}},
	})
	accesses := map[string][2]string{
		"logs": {http.MethodGet, "/log"}, "exec": {http.MethodPost, "/exec?command=id&stdout=true"},
		"attach": {http.MethodPost, "/attach?stdout=true"}, "port-forward": {http.MethodPost, "/portforward?ports=80"},
	}
	for what, access := range accesses {
		for name, tc := range map[string]struct {
			path, message string
			code          int
		}{
			"the pod's name in one's own workspace":      {at(foreign, pod, access[1]), fmt.Sprintf("pods %q not found", pod), http.StatusNotFound},
			"the pod's name downstream":                  {at(foreign, "web", access[1]), `pods "web" not found`, http.StatusNotFound},
			"an own pod of such a name":                  {at(foreign, names.Mirror(edge.key, "own"), access[1]), "has not been placed on a cluster", http.StatusBadRequest},
			"the pod in the neighbour's workspace":       {at(own, pod, access[1]), "access to the workspace denied", http.StatusForbidden},
			"the same by the workspace's id":             {at(ownID, pod, access[1]), "access to the workspace denied", http.StatusForbidden},
			"a pod there that does not exist":            {at(own, "none", access[1]), "access to the workspace denied", http.StatusForbidden},
			"the pod in all workspaces":                  {at("*", pod, access[1]), "", http.StatusForbidden},
			"the pod through the virtual workspace":      {strings.TrimPrefix(forged.config.Host, s.URL) + at(ownID, pod, access[1]), "is not supported on resources of kind", http.StatusMethodNotAllowed},
			"through a SyncTarget that is the neighbour": {strings.TrimPrefix(edge.config.Host, s.URL) + at(ownID, pod, access[1]), `has no verb "sync" on it`, http.StatusForbidden},
		} {
			r := bob.do(access[0], tc.path, "", version.ProtocolHeader, fmt.Sprint(version.SyncProtocol))
			if r.code != tc.code || !strings.Contains(r.status.Message, tc.message) {
				t.Errorf("%s, %s: %d %.300s, want %d %q", what, name, r.code, r.body, tc.code, tc.message)
			}
		}
	}

	// The neighbour's end of the tunnel cannot be taken over.
	stolen := rest.CopyConfig(forged.config)
	stolen.Host = edge.config.Host
	if _, err := openTunnel(t, &agent{t: t, config: stolen}); err == nil || !strings.Contains(err.Error(), "403 Forbidden") {
		t.Errorf("bob's syncer opens the tunnel of alice's target: %v, want 403", err)
	}
	if r := alice.do(http.MethodGet, at(own, pod, "/log"), ""); r.code != http.StatusOK {
		t.Errorf("the owner's log afterwards: %d %s", r.code, r.body)
	}
	if got := edges.requests.Load() - before; got != 1 {
		t.Errorf("%d requests came through alice's tunnel, want her own one", got)
	}
	if got := forgeds.requests.Load(); got != 0 {
		t.Errorf("%d requests came through bob's tunnel", got)
	}
}
