package bench

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// fleet is a server with physical clusters: stock control planes without nodes.
type fleet struct {
	*Env
	kcp      *apiServer
	clusters []*cluster
}

// cluster is a physical cluster and its syncer.
type cluster struct {
	*apiServer
	name string
	// key is the target's.
	key string
	// command runs its syncer.
	command []string
	syncer  *process
}

const computeCluster = "root:compute"

// syncing measures the way of objects to physical clusters and back.
func syncing(ctx context.Context, e *Env) error {
	f := &fleet{Env: e}
	defer f.close()
	var err error
	if f.kcp, err = e.startKCP(ctx, "sync"); err != nil {
		return err
	}
	if err := f.kcp.createWorkspace(ctx, "root", "compute"); err != nil {
		return err
	}
	if err := f.kcp.createWorkspace(ctx, "root:"+tenantsParent, workspaceName(0)); err != nil {
		return err
	}
	location := manifest{
		"apiVersion": "scheduling.kcp.io/v1alpha1", "kind": "Location", "metadata": named("default"),
		"spec": manifest{"targetWorkspace": computeCluster},
	}
	if err := f.kcp.admin.create(ctx, "/clusters/root/apis/scheduling.kcp.io/v1alpha1/locations", location); err != nil {
		return err
	}
	if err := f.addCluster(ctx, "us-east1"); err != nil {
		return err
	}
	if e.wants("P8") {
		if err := f.roundTrips(ctx); err != nil {
			return fmt.Errorf("P8: %w", err)
		}
	}
	if e.wants("P9") {
		if err := f.moves(ctx); err != nil {
			return fmt.Errorf("P9: %w", err)
		}
	}
	if e.wants("P10") {
		if err := f.manyObjects(ctx); err != nil {
			return fmt.Errorf("P10: %w", err)
		}
	}
	return nil
}

func (f *fleet) close() {
	for _, c := range f.clusters {
		c.syncer.stop()
		f.clear(c.apiServer)
	}
	if f.kcp != nil {
		f.clear(f.kcp)
	}
}

// addCluster starts a physical cluster, registers it the way people do, and runs its
// syncer.
func (f *fleet) addCluster(ctx context.Context, name string) error {
	stock, err := f.startStock(ctx, name)
	if err != nil {
		return err
	}
	c := &cluster{apiServer: stock, name: name}
	f.clusters = append(f.clusters, c)
	here := func(file string) string { return filepath.Join(f.kcp.dir, name+file) }
	compute := here(".compute.kubeconfig")
	pki := filepath.Join(f.kcp.dir, "root", "pki")
	if err := os.WriteFile(compute, kubeconfig(f.kcp.url+"/clusters/"+computeCluster, pki), 0o600); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"kubectl-kcp", "--kubeconfig", compute, "workload", "sync", name, "--syncer-kubeconfig", here(".syncer.kubeconfig"), "-o", here(".yaml")},
		{"kubectl", "--kubeconfig", c.adminKubeconfig, "apply", "-f", here(".yaml")},
	} {
		cmd := exec.CommandContext(ctx, f.bin(argv[0]), argv[1:]...)
		// Without a home nothing of the person who runs this is read or written.
		cmd.Env = append(os.Environ(), "HOME="+f.kcp.dir, "KUBECONFIG="+compute)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
		}
	}
	var target object
	if err := f.kcp.admin.get(ctx, f.target(name), &target); err != nil {
		return err
	}
	c.command = []string{
		f.bin("syncer"), "--from-kubeconfig", here(".syncer.kubeconfig"), "--to-kubeconfig", c.adminKubeconfig,
		"--sync-target-name", name, "--sync-target-uid", target.Metadata.UID, "--sync-target-cluster", target.Metadata.Annotations["kcp.io/cluster"],
	}
	if err := f.startSyncer(ctx, c); err != nil {
		return err
	}
	return eventually(ctx, "sync target "+name+" is ready", pollInterval, func(ctx context.Context) (bool, error) {
		err := f.kcp.admin.get(ctx, f.target(name), &target)
		c.key = target.Status.Key
		status, _ := target.condition("Ready")
		return status == "True" && c.key != "", err
	})
}

// startSyncer starts the syncer of a cluster; its seen says that it knows both sides.
func (f *fleet) startSyncer(ctx context.Context, c *cluster) error {
	var err error
	c.syncer, err = start(ctx, f.kcp.dir, "syncer-"+c.name, "Both sides are known", c.command)
	return err
}

func (f *fleet) target(name string) string {
	return "/clusters/" + computeCluster + "/apis/workload.kcp.io/v1alpha1/synctargets/" + name
}

// deployments is the path of the Deployments in a namespace of the tenant's workspace.
func deployments(namespace string) string {
	return workspacePath(0) + "/apis/apps/v1/namespaces/" + namespace + "/deployments"
}

func deployment(name string) manifest {
	labels := manifest{"app": name}
	return manifest{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": named(name),
		"spec": manifest{
			// None can run: there are no nodes. What is measured does not need them.
			"replicas": 0, "selector": manifest{"matchLabels": labels},
			"template": manifest{
				"metadata": manifest{"labels": labels},
				"spec":     manifest{"containers": []manifest{{"name": "c", "image": "demo.local/app:v1"}}},
			},
		},
	}
}

func (f *fleet) createNamespace(ctx context.Context, name string) error {
	return f.kcp.tenant.create(ctx, workspacePath(0)+"/api/v1/namespaces", manifest{"apiVersion": "v1", "kind": "Namespace", "metadata": named(name)})
}

func (f *fleet) deleteNamespace(ctx context.Context, name string) error {
	path := workspacePath(0) + "/api/v1/namespaces/" + name
	if err := f.kcp.tenant.delete(ctx, path); err != nil {
		return err
	}
	return eventually(ctx, "namespace "+name+" is gone", pollInterval, func(ctx context.Context) (bool, error) {
		err := f.kcp.tenant.get(ctx, path, nil)
		return isStatus(err, http.StatusNotFound), err
	})
}

// roundTrips measures how long a Deployment takes down, and its status up.
func (f *fleet) roundTrips(ctx context.Context) error {
	f.say("syncing %d Deployments", f.Scale.Syncs)
	const namespace = "roundtrips"
	if err := f.createNamespace(ctx, namespace); err != nil {
		return err
	}
	east := f.clusters[0]
	down, err := watchReadiness(ctx, east.admin, "/apis/apps/v1/deployments", func(o object) (string, bool) { return o.Metadata.Name, true })
	if err != nil {
		return err
	}
	defer down.stop()
	// The first has to be placed; those after it are what is measured.
	if err := f.kcp.tenant.create(ctx, deployments(namespace), deployment("first")); err != nil {
		return err
	}
	if _, err := down.wait(ctx, "first"); err != nil {
		return err
	}
	var l list
	if err := east.admin.get(ctx, "/apis/apps/v1/deployments", &l); err != nil {
		return err
	}
	if len(l.Items) != 1 {
		return fmt.Errorf("%d Deployments downstream, want 1", len(l.Items))
	}
	below := "/apis/apps/v1/namespaces/" + l.Items[0].Metadata.Namespace + "/deployments"
	there, back, err := f.roundTrip(ctx, f.kcp, deployments(namespace), east.apiServer, below, down)
	if err != nil {
		return err
	}
	// The same within one stock server: what any client has to wait for its watch.
	local := "/apis/apps/v1/namespaces/default/deployments"
	thereBase, backBase, err := f.roundTrip(ctx, east.apiServer, local, east.apiServer, local, down)
	if err != nil {
		return err
	}
	note := "the baseline is a create, or a status update, and its watch event within one stock server"
	for _, fig := range []Figure{
		Figure{Name: "sync.down", Unit: "ms", Measure: there}.against(thereBase).atMost(30),
		Figure{Name: "sync.up", Unit: "ms", Measure: back}.against(backBase).atMost(30),
	} {
		fig.Figure, fig.Size, fig.Note = "P8", f.Scale.Syncs, note
		if err := f.report(fig); err != nil {
			return err
		}
	}
	return f.deleteNamespace(ctx, namespace)
}

// roundTrip creates Deployments at one server and sets their status at another.
func (f *fleet) roundTrip(ctx context.Context, top *apiServer, upper string, bottom *apiServer, lower string, down *readiness) (there, back Measure, err error) {
	up, err := watchReadiness(ctx, top.tenant, upper, func(o object) (string, bool) {
		_, message := o.condition("Bench")
		return o.Metadata.Name + message, message != ""
	})
	if err != nil {
		return there, back, err
	}
	defer up.stop()
	var downs, ups []time.Duration
	for i := range f.Scale.Syncs {
		name := fmt.Sprintf("%s-d%d", top.name, i)
		asked := time.Now()
		if err := top.tenant.create(ctx, upper, deployment(name)); err != nil {
			return there, back, err
		}
		at, err := down.wait(ctx, name)
		if err != nil {
			return there, back, err
		}
		downs = append(downs, at.Sub(asked))
		// Controllers below keep a condition that they do not know.
		message := fmt.Sprint("round ", i)
		patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Bench","status":"True","message":%q}]}}`, message)
		asked = time.Now()
		if _, err := bottom.admin.raw(ctx, http.MethodPatch, lower+"/"+name+"/status", "application/strategic-merge-patch+json", patch); err != nil {
			return there, back, err
		}
		if at, err = up.wait(ctx, name+message); err != nil {
			return there, back, err
		}
		ups = append(ups, at.Sub(asked))
	}
	return latencies(downs), latencies(ups), nil
}
