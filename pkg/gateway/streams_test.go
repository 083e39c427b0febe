package gateway

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/13eedeaf/kcp/pkg/informer"
)

// TestStreamsFollowOnlyWhenStored: a stream counts as following when its reader has come
// back for more after the end of the initial state, not before.
func TestStreamsFollowOnlyWhenStored(t *testing.T) {
	fake := watch.NewFakeWithChanSize(10, false)
	news := make(chan struct{}, 10)
	s := newStreams(func() { news <- struct{}{} })
	open := s.track("services", func(context.Context, metav1.ListOptions) (watch.Interface, error) { return fake, nil },
		func(o informer.Object) bool { return o.GetName() != "unwanted" })
	w, err := open(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s.whole() {
		t.Error("whole before anything was read")
	}
	service := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
	}
	fake.Add(service("unwanted"))
	fake.Add(service("wanted"))
	bookmark := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	fake.Action(watch.Bookmark, bookmark)
	first := (<-w.ResultChan()).Object.(*corev1.Service)
	if first.Name != "wanted" || first.ManagedFields != nil {
		t.Errorf("first object: %+v, want the wanted one without managed fields", first)
	}
	<-w.ResultChan()
	if s.whole() {
		t.Error("whole while the reader is busy with the end of the initial state")
	}
	<-w.ResultChan()
	<-news
	if !s.whole() {
		t.Error("not whole after the reader came back")
	}
	w.Stop()
	<-news
	if s.whole() {
		t.Error("whole after the stream's end")
	}
}

// TestImports: a restart of the server must cost no traffic, so nothing of it runs here.
func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for _, path := range strings.Fields(string(out)) {
		for _, forbidden := range []string{"/kcp/pkg/server", "/kcp/pkg/reconciler", "/kcp/pkg/virtual", "/kcp/pkg/workspaces", "k8s.io/apiserver", "k8s.io/kubernetes/", "go.etcd.io/"} {
			if strings.Contains(path, forbidden) {
				t.Errorf("the gateway imports %s", path)
			}
		}
	}
}
