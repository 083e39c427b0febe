package syncer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/uuid"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/syncer/manifest"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

const (
	tenantCluster   = "cluster1"
	tenantNamespace = "shop"
)

// world is one SyncTarget with its syncer between a fake control plane and a real
// physical cluster, where the syncer has the identity that the manifest gives it.
type world struct {
	t     *testing.T
	vw    *fakeVW
	admin dynamic.Interface
	kube  kubernetes.Interface
	id    identity
	// up leads to the control plane; syncer to the physical cluster, with the rights
	// that the syncer has there.
	up, syncer *rest.Config
	// namespace is the tenant's namespace downstream.
	namespace string
	stop      func()
	// applied counts server-side applies in the physical cluster.
	applied atomic.Int32
}

// counted counts applies on the way.
type counted struct {
	http.RoundTripper
	applied *atomic.Int32
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch {
		c.applied.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	target := parse(t, `
apiVersion: workload.kcp.io/v1alpha1
kind: SyncTarget
metadata: {name: us-east1, annotations: {kcp.io/cluster: compute}}
spec: {}`)
	target.SetUID(uuid.NewUUID())
	w := newWorldFor(t, target.GetName(), target.GetUID(), "compute")
	w.namespace = w.id.namespace(namespaceKey{tenantCluster, tenantNamespace})
	w.vw = newFakeVW(t, target)
	w.up = &rest.Config{Host: w.vw.server.URL}
	// The fake server waits for its streams to end.
	t.Cleanup(func() { w.stop() })
	return w
}

// newWorldFor returns a world for a SyncTarget of a control plane to be set up by the
// caller.
func newWorldFor(t *testing.T, name string, uid types.UID, cluster logicalcluster.Name) *world {
	t.Helper()
	config := physicalCluster(t)
	w := &world{t: t, stop: func() {}}
	t.Cleanup(func() { w.stop() })
	var err error
	if w.admin, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if w.kube, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	o := manifest.Options{SyncTargetName: name, SyncTargetUID: uid, SyncTargetCluster: cluster, Kubeconfig: []byte("none")}
	account := o.ServiceAccount()
	key := workloadv1alpha1.TargetKey(cluster, uid)
	w.id = identity{name: name, uid: uid, cluster: cluster, targetKey: key, instanceID: key, podSecurity: NewOptions().PodSecurity, account: account}
	w.apply(o)
	w.syncer = rest.CopyConfig(config)
	w.syncer.Wrap(func(rt http.RoundTripper) http.RoundTripper { return counted{rt, &w.applied} })
	w.syncer.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + account.Namespace, "system:authenticated"},
	}
	return w
}

// apply applies the manifest as the cluster's admin does.
func (w *world) apply(o manifest.Options) {
	w.t.Helper()
	doc, err := manifest.Render(o)
	if err != nil {
		w.t.Fatal(err)
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(doc), 4096)
	for {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(&obj.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			w.t.Fatal(err)
		}
		if len(obj.Object) == 0 {
			continue
		}
		gvr, _ := meta.UnsafeGuessKindToResource(obj.GroupVersionKind())
		if obj.GetKind() == "ValidatingAdmissionPolicy" {
			gvr.Resource = "validatingadmissionpolicies"
		}
		var client dynamic.ResourceInterface = w.admin.Resource(gvr)
		if obj.GetNamespace() != "" {
			client = w.admin.Resource(gvr).Namespace(obj.GetNamespace())
		}
		if _, err := client.Apply(w.t.Context(), obj.GetName(), obj, metav1.ApplyOptions{FieldManager: "admin"}); err != nil {
			w.t.Fatalf("cannot apply %s %s: %v", obj.GetKind(), obj.GetName(), err)
		}
	}
}

// start starts a syncer, next to the others if any, and returns how to stop it.
func (w *world) start() func() {
	w.t.Helper()
	s, err := New(&Config{
		Upstream: w.up, Downstream: w.syncer,
		identity: w.id, leaderElect: true, holder: string(uuid.NewUUID()),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			w.t.Errorf("syncer ended: %v", err)
		}
	})
	stop := sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	earlier := w.stop
	w.stop = func() {
		stop()
		earlier()
	}
	return stop
}

// parse reads an object; one without a cluster is the tenant's.
func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	b, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(b, &obj.Object); err != nil {
		t.Fatal(err)
	}
	if logicalcluster.From(obj) == "" {
		annotations := obj.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[logicalcluster.AnnotationKey] = tenantCluster
		obj.SetAnnotations(annotations)
		obj.SetNamespace(tenantNamespace)
	}
	return obj
}

// put creates or updates one of the tenant's objects.
func (w *world) put(resource, text string) *unstructured.Unstructured {
	w.t.Helper()
	return w.vw.put(resource, parse(w.t, text))
}

// assign assigns the tenant's namespace to the target.
func (w *world) assign() {
	w.t.Helper()
	w.put("assignments", fmt.Sprintf(`
apiVersion: scheduling.kcp.io/v1alpha1
kind: Assignment
metadata: {name: %[1]s, finalizers: [%[2]s]}
spec: {target: %[1]s, location: default, placement: default, state: Active}`, w.id.targetKey, workloadv1alpha1.SyncerFinalizer))
}

func (w *world) upstream(resource, name string) *unstructured.Unstructured {
	return w.vw.get(resource, tenantCluster, tenantNamespace, name)
}

// report returns the report of one of the tenant's objects.
func (w *world) report(resource, group, name string) *unstructured.Unstructured {
	return w.upstream("syncreports", names.Report(w.id.targetKey, resource, group, name))
}

// field returns a nested field of an object, or nil.
func field(obj *unstructured.Unstructured, path ...string) any {
	if obj == nil {
		return nil
	}
	value, _, _ := unstructured.NestedFieldNoCopy(obj.Object, path...)
	return value
}

func gvr(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

var (
	configMaps  = gvr("", "v1", "configmaps")
	deployments = gvr("apps", "v1", "deployments")
	pods        = gvr("", "v1", "pods")
)

// downstream returns an object of the tenant's namespace downstream, or nil.
func (w *world) downstream(gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	obj, err := w.admin.Resource(gvr).Namespace(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return obj
}

func (w *world) downstreamNamespace() *unstructured.Unstructured {
	obj, err := w.admin.Resource(namespacesGVR).Get(w.t.Context(), w.namespace, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return obj
}

// uids returns the uids of all that the tenant has downstream.
func (w *world) uids() map[string]types.UID {
	w.t.Helper()
	out := map[string]types.UID{}
	for _, r := range []schema.GroupVersionResource{configMaps, gvr("", "v1", "secrets"), gvr("", "v1", "services"), deployments, pods} {
		list, err := w.admin.Resource(r).Namespace(w.namespace).List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, o := range list.Items {
			out[r.Resource+"/"+o.GetName()] = o.GetUID()
		}
	}
	if ns := w.downstreamNamespace(); ns != nil {
		out["namespace"] = ns.GetUID()
	}
	return out
}

// eventually waits until f holds.
func (w *world) eventually(what string, f func() bool) {
	w.t.Helper()
	eventually(w.t, what, f)
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !f() {
		select {
		case <-deadline:
			t.Fatalf("did not come true in time: %s", what)
		case <-ticker.C:
		}
	}
}

func dynamicFor(t *testing.T, config *rest.Config) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
