package physical

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// binEnv names the directory of the binaries; without it there is nothing to
// run clusters with.
const binEnv = "KCP_PHYSICAL_BIN"

const (
	greeting = "hello-from-the-configmap"
	token    = "from-the-secret"
)

// TestClusters brings up two clusters, runs the demo application on both, loses
// one of them and gets it back, and looks for traces after taking them down.
func TestClusters(t *testing.T) {
	bin := os.Getenv(binEnv)
	if bin == "" {
		t.Skipf("%s does not name the directory of the binaries", binEnv)
	}
	if os.Geteuid() != 0 {
		t.Skip("root is needed")
	}
	f := upForTest(t, Options{Dir: t.TempDir(), BinDir: bin, Netns: fmt.Sprintf("kcp-physical-test-%d", os.Getpid()), Log: t.Output()})
	east, west := f.Cluster("us-east1"), f.Cluster("us-west1")
	eastPods, westPods := deploy(t, east), deploy(t, west)
	for _, pod := range slices.Concat(eastPods, westPods) {
		checkHello(t, f, pod)
	}
	if left := traces(t, f, containers(t, f)); len(left) == 0 {
		t.Fatal("running clusters leave no traces: the search for them does not work")
	}

	checkService(t, east)
	if out, err := f.Exec(t.Context(), "ip", "-4", "route", "show", "default"); err != nil || len(out) > 0 {
		t.Errorf("got default route %q (error %v), want no way out of the network namespace", out, err)
	}
	if out, err := f.Exec(t.Context(), "sh", "-c", "echo oops >&2; exit 3"); err == nil || !strings.Contains(err.Error(), "oops") {
		t.Errorf("got %q and error %v, want one that says what the command wrote", out, err)
	}

	// West must not notice what happens to east.
	ping := startPinger(t, f, bin, westPods[0])
	if err := east.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, component := range Components() {
		if pid, err := east.Pid(component); err != nil || pid != 0 {
			t.Errorf("%s of the stopped cluster has pid %d (error %v), want none", component, pid, err)
		}
	}
	if err := east.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, pod := range waitForPods(t, east, func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].RestartCount == 1
	}) {
		checkHello(t, f, pod)
	}

	// Pods survive without their components, and Up starts what is missing.
	if err := west.Stop(t.Context(), ControlPlane, Kubelet, Containerd); err != nil {
		t.Fatal(err)
	}
	if _, err := Up(t.Context(), f.opts); err != nil {
		t.Fatal(err)
	}
	for _, pod := range waitForPods(t, west, func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].RestartCount == 0
	}) {
		checkHello(t, f, pod)
	}
	ping(t)

	ids := containers(t, f)
	down(t, f)
	if left := traces(t, f, ids); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

// upForTest takes the fixture down at the end in any case.
func upForTest(t *testing.T, o Options) *Fixture {
	t.Helper()
	t.Cleanup(func() {
		if f, err := Open(o); err == nil {
			down(t, f)
		}
	})
	f, err := Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func down(t *testing.T, f *Fixture) {
	t.Helper()
	// The test's own context is done when it cleans up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if err := f.Down(ctx); err != nil {
		t.Errorf("cannot take down the fixture: %v", err)
	}
}

// deploy creates the application and returns its two pods.
func deploy(t *testing.T, c *Cluster) []corev1.Pod {
	t.Helper()
	client := clientFor(t, c)
	labels := map[string]string{"app": "demo"}
	meta := metav1.ObjectMeta{Name: "demo", Labels: labels}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"greeting": greeting}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"token": token}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	replicas := int32(2)
	deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas,
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name:  "app",
				Image: AppImageV1,
				Env: []corev1.EnvVar{{Name: "GREETING", ValueFrom: &corev1.EnvVarSource{
					ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "demo"}, Key: "greeting"},
				}}},
				ReadinessProbe: &corev1.Probe{
					PeriodSeconds: 1,
					ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(8080)}},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "secret", MountPath: "/etc/demo/secret"}},
			}},
			Volumes: []corev1.Volume{{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "demo"}}}},
		}},
	}}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return waitForPods(t, c, func(*corev1.Pod) bool { return true })
}

// waitForPods returns the two pods of the application as soon as both are ready
// and as wanted.
func waitForPods(t *testing.T, c *Cluster, want func(*corev1.Pod) bool) []corev1.Pod {
	t.Helper()
	client := clientFor(t, c)
	var pods []corev1.Pod
	var last string
	err := waitUntil(t.Context(), time.Minute, func() bool {
		list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=demo"})
		if err != nil {
			last = err.Error()
			return false
		}
		pods, last = list.Items, ""
		good := 0
		for i := range pods {
			p := &pods[i]
			last += fmt.Sprintf("%s: %+v\n", p.Name, p.Status)
			ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
			if ready && len(p.Status.ContainerStatuses) == 1 && want(p) {
				good++
			}
		}
		return good == 2 && len(pods) == 2
	})
	if err != nil {
		t.Fatalf("no two pods in cluster %q as wanted: %v\n%s", c.Name(), err, last)
	}
	return pods
}

// checkHello asks a pod, from within the network namespace.
func checkHello(t *testing.T, f *Fixture, pod corev1.Pod) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: f.DialContext, DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + pod.Status.PodIP + ":8080/hello")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Errorf("pod %s answered %s: %s", pod.Name, resp.Status, body)
	}
	want := fmt.Sprintf("version=v1 pod=%s greeting=%s secret=%s secret-sha=", pod.Name, greeting, token)
	if !strings.HasPrefix(string(body), want) {
		t.Errorf("pod %s answered %q, want it to begin with %q", pod.Name, body, want)
	}
}

// checkService asks the API server at the address pods get for it.
func checkService(t *testing.T, c *Cluster) {
	t.Helper()
	config, err := c.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.Host = "https://" + c.serviceIP(1)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	v, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatalf("kubernetes Service: %v", err)
	}
	// The version is set when the binary is linked; without it clients may not
	// know what the server can do.
	if !strings.HasPrefix(v.GitVersion, "v1.") {
		t.Errorf("server has version %q, want one of Kubernetes", v.GitVersion)
	}
}

// startPinger pings a pod from inside the namespace until the returned function
// is called, which demands that every request was answered.
func startPinger(t *testing.T, f *Fixture, bin string, pod corev1.Pod) (end func(*testing.T)) {
	t.Helper()
	dir := t.TempDir()
	out, stop := filepath.Join(dir, "out"), filepath.Join(dir, "stop")
	cmd := f.Command(t.Context(), filepath.Join(bin, "pinger"),
		"-url=http://demo.example.com/hello", "-resolve="+pod.Status.PodIP+":8080", "-expect="+greeting, "-out="+out, "-stop-file="+stop)
	stderr := &bytes.Buffer{}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T) {
		t.Helper()
		if err := os.WriteFile(stop, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		err := cmd.Wait()
		summary, readErr := os.ReadFile(out)
		if err != nil || readErr != nil {
			t.Fatalf("pinger: %v, %v\n%s%s", err, readErr, stderr, summary)
		}
		got := struct{ Requests, Failures int }{}
		if err := json.Unmarshal(summary, &got); err != nil {
			t.Fatal(err)
		}
		if got.Requests < 10 || got.Failures > 0 {
			t.Errorf("pinger: %s", summary)
		}
		t.Logf("pinger: %d of %d requests answered", got.Requests-got.Failures, got.Requests)
	}
}

// containers returns the ids of the running containers: four of the application
// and one for each of its pods.
func containers(t *testing.T, f *Fixture) []string {
	t.Helper()
	ids := []string{}
	for _, c := range f.Clusters() {
		territory, err := c.territory()
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, territory.containers()...)
	}
	if len(ids) != 8 {
		t.Errorf("got %d containers, want 8: %q", len(ids), ids)
	}
	return ids
}

// traces returns everything on the machine that belongs to the fixture or one of
// the containers it had, except for logs.
func traces(t *testing.T, f *Fixture, ids []string) []string {
	t.Helper()
	left := []string{}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// What cannot be read has ended; zombies have neither.
		for _, file := range []string{"cmdline", "mountinfo"} {
			data, err := os.ReadFile(filepath.Join("/proc", p.Name(), file))
			if err == nil && bytes.Contains(data, []byte(f.opts.Dir)) {
				left = append(left, fmt.Sprintf("process %d: %s", pid, file))
			}
		}
	}
	for _, id := range ids {
		for _, pattern := range []string{filepath.Join(cgroupFS, containerCgroup, id), filepath.Join(cgroupFS, "*", containerCgroup, id)} {
			dirs, err := filepath.Glob(pattern)
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, dirs...)
		}
	}
	if f.netns().exists() {
		left = append(left, "network namespace "+f.Netns())
	}
	err = filepath.WalkDir(f.opts.Dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) != ".log" {
			left = append(left, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func clientFor(t *testing.T, c *Cluster) kubernetes.Interface {
	t.Helper()
	client, err := c.client()
	if err != nil {
		t.Fatal(err)
	}
	return client
}
