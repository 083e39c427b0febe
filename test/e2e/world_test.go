package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/test/physical"
)

const (
	serverAddress = "127.0.0.1:6443"
	serverURL     = "https://" + serverAddress
	// Ports of the links: each agent reaches the server through one of its own.
	firstLinkPort = 7001
	// The port of the link of a syncer's second replica.
	secondLinkPort = 7101
)

// gatewayAddresses are where clients reach the gateways.
var gatewayAddresses = []string{"10.200.0.101", "10.200.0.102"}

// world is the product on two real clusters, with each part a process that can be
// killed, paused or cut off.
type world struct {
	dir string
	bin string
	f   *physical.Fixture

	etcd, server *process
	gateways     []*gatewayInstance
	clusters     map[string]*cluster
	prober       *prober

	clients *clients.Clients
	// compute holds the SyncTargets, shop is the user's workspace.
	compute, shop logicalcluster.Name
}

type gatewayInstance struct {
	*process
	address string
	link    *link
}

// cluster is a physical cluster with its syncer.
type cluster struct {
	*physical.Cluster
	kube     kubernetes.Interface
	metadata metadata.Interface
	syncer   *process
	link     *link
	// key is the target key of its SyncTarget.
	key string
}

// newWorld starts everything. It skips the test where the binaries are not given.
func newWorld(t *testing.T) *world {
	t.Helper()
	bin := os.Getenv("KCP_BIN")
	if bin == "" {
		t.Skip("KCP_BIN is not set: run make test-e2e")
	}
	dir, err := os.MkdirTemp("", "kcp-faults-")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{dir: dir, bin: bin, clusters: map[string]*cluster{}}
	t.Cleanup(func() { w.down(t) })
	f, err := physical.Up(t.Context(), physical.Options{Dir: filepath.Join(dir, "physical"), BinDir: bin, Netns: netnsName("faults")})
	if err != nil {
		t.Fatal(err)
	}
	w.f = f
	for _, address := range gatewayAddresses {
		w.exec(t, "", "ip", "address", "add", address+"/32", "dev", "lo")
	}
	w.startServer(t)
	w.startGateways(t)
	w.exec(t, "", "kubectl", "kcp", "workspace", "create", "shop")
	w.exec(t, "", "kubectl", "kcp", "workspace", "create", "compute")
	w.compute, w.shop = w.workspace(t, "compute"), w.workspace(t, "shop")
	w.exec(t, locationYAML, "kubectl", "--server", serverURL+"/clusters/root", "apply", "-f", "-")
	for i, c := range f.Clusters() {
		cfg, err := c.RESTConfig()
		if err != nil {
			t.Fatal(err)
		}
		kube, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := metadata.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		link := newLink(t, f, firstLinkPort+len(gatewayAddresses)+i, serverAddress)
		w.clusters[c.Name()] = &cluster{Cluster: c, kube: kube, metadata: objects, link: link}
		w.register(t, c.Name())
	}
	for name := range w.clusters {
		w.ready(t, name)
	}
	w.prober = newProber(f, gatewayAddresses...)
	return w
}

const locationYAML = `apiVersion: scheduling.kcp.io/v1alpha1
kind: Location
metadata: {name: default}
spec: {targetWorkspace: "root:compute"}
`

// down ends everything. After a failure the logs' ends are shown, and all of it stays.
func (w *world) down(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	if w.prober != nil {
		w.prober.stop()
	}
	processes := []*process{}
	for _, c := range w.clusters {
		processes = append(processes, c.syncer)
	}
	for _, g := range w.gateways {
		processes = append(processes, g.process)
	}
	processes = append(processes, w.server, w.etcd)
	for _, p := range processes {
		if p == nil {
			continue
		}
		p.kill()
		if t.Failed() {
			t.Log(p.tail())
		}
	}
	if w.f != nil {
		if err := w.f.Down(ctx); err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.Logf("logs are in %s", w.dir)
		return
	}
	if err := os.RemoveAll(w.dir); err != nil {
		t.Error(err)
	}
}

// process prepares a process in the network namespace.
func (w *world) process(name, binary string, args ...string) *process {
	return &process{
		name: name, log: filepath.Join(w.dir, name+".log"),
		command: func(ctx context.Context) *exec.Cmd {
			return w.f.Command(ctx, filepath.Join(w.bin, binary), args...)
		},
	}
}

// exec runs a command in the network namespace, as admin, and returns what it prints.
func (w *world) exec(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	cmd := w.f.Command(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "PATH="+w.bin+":"+os.Getenv("PATH"), "HOME="+w.dir, "KUBECONFIG="+filepath.Join(w.dir, "admin.kubeconfig"))
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String()
}

// startServer starts etcd, as a process of its own, and the server, and makes the
// administrator's clients.
func (w *world) startServer(t *testing.T) {
	t.Helper()
	root := filepath.Join(w.dir, "root")
	w.etcd = etcdProcess(w.dir)
	w.etcd.start(t)
	endpoint := etcdEndpoint(t, w.etcd)
	w.server = w.process("server", "kcp", "start", "--root-directory", root, "--etcd-servers", endpoint)
	w.server.start(t)
	w.serverReady(t)
	data, err := os.ReadFile(filepath.Join(root, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "admin.kubeconfig"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Host, cfg.Dial, cfg.Timeout = serverURL, w.f.DialContext, 10*time.Second
	if w.clients, err = clients.New(cfg); err != nil {
		t.Fatal(err)
	}
}

// serverReady waits until the server is ready.
func (w *world) serverReady(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, "the server is ready", func() (bool, string) {
		return w.readyz(t.Context(), serverURL)
	})
}

func (w *world) readyz(ctx context.Context, url string) (bool, string) {
	// Only whether it answers matters here.
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: w.f.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return false, err.Error()
	}
	resp, err := client.Do(req)
	if err != nil {
		return false, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusOK, resp.Status
}

func (w *world) startGateways(t *testing.T) {
	t.Helper()
	kubeconfig, err := os.ReadFile(filepath.Join(w.dir, "root", "gateway.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	for i, address := range gatewayAddresses {
		name := fmt.Sprintf("gateway-%d", i+1)
		link := newLink(t, w.f, firstLinkPort+i, serverAddress)
		linked := bytes.ReplaceAll(kubeconfig, []byte(serverAddress), []byte(link.address))
		file := filepath.Join(w.dir, name+".kubeconfig")
		if err := os.WriteFile(file, linked, 0o600); err != nil {
			t.Fatal(err)
		}
		g := &gatewayInstance{address: address, link: link, process: w.process(name, "kcp", "gateway", "--kubeconfig", file,
			"--listen", address+":80", "--address", address, "--name", name, "--state-dir", filepath.Join(w.dir, "gateways"))}
		g.start(t)
		w.gateways = append(w.gateways, g)
	}
	for _, g := range w.gateways {
		eventually(t, 30*time.Second, g.name+" is registered", func() (bool, string) {
			_, err := w.clients.GatewayInstances(logicalcluster.Root).Get(t.Context(), g.name, metav1.GetOptions{})
			return err == nil, fmt.Sprint(err)
		})
	}
}

func (w *world) workspace(t *testing.T, name string) logicalcluster.Name {
	t.Helper()
	ws, err := w.clients.Workspaces(logicalcluster.Root).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return logicalcluster.Name(ws.Spec.Cluster)
}

// register makes the SyncTarget of a cluster and starts its syncer, with the rights that
// the manifest gives it there.
func (w *world) register(t *testing.T, name string) {
	t.Helper()
	c := w.clusters[name]
	file := func(kind string) string { return filepath.Join(w.dir, name+"."+kind) }
	w.exec(t, "", "kubectl", "kcp", "workspace", "use", "root:compute")
	w.exec(t, "", "kubectl", "kcp", "workload", "sync", name, "--kcp-url", "https://"+c.link.address,
		"--syncer-kubeconfig", file("upstream"), "-o", file("yaml"))
	w.exec(t, "", "kubectl", "--kubeconfig", c.Kubeconfig(), "apply", "-f", file("yaml"))
	target := w.target(t, name)
	c.key = workloadv1alpha1.TargetKey(w.compute, target.UID)
	w.syncerKubeconfig(t, c, names.SyncerNamespace(names.InstanceID(w.compute, target.UID)), file("downstream"))
	c.syncer = w.process("syncer-"+name, "syncer", "--from-kubeconfig", file("upstream"), "--to-kubeconfig", file("downstream"),
		"--sync-target-name", name, "--sync-target-uid", string(target.UID), "--sync-target-cluster", string(w.compute))
	c.syncer.start(t)
}

func (w *world) syncerKubeconfig(t *testing.T, c *cluster, namespace, file string) {
	t.Helper()
	token, err := c.kube.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), names.ServiceAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 3600)},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := c.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	ca, err := caData(admin)
	if err != nil {
		t.Fatal(err)
	}
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["c"] = &clientcmdapi.Cluster{Server: c.Server(), CertificateAuthorityData: ca}
	cfg.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	cfg.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	cfg.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*cfg, file); err != nil {
		t.Fatal(err)
	}
}

func caData(cfg *rest.Config) ([]byte, error) {
	if len(cfg.CAData) > 0 {
		return cfg.CAData, nil
	}
	return os.ReadFile(cfg.CAFile)
}

// eventually polls until check is true.
func eventually(t *testing.T, limit time.Duration, what string, check func() (bool, string)) {
	t.Helper()
	began := time.Now()
	for {
		ok, last := check()
		if ok {
			return
		}
		if time.Since(began) > limit {
			t.Fatalf("%s: not within %s; last: %s", what, limit, last)
		}
		pause(t, 50*time.Millisecond)
	}
}

// pause waits, but not longer than the test may run.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	case <-time.After(d):
	}
}
