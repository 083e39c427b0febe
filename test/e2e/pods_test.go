package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

// TestPods reaches into pods of physical clusters from a workspace, with stock kubectl.
func TestPods(t *testing.T) {
	w := newWorld(t)
	p := &podsWorld{world: w, app: app{namespace: "pods", drainSeconds: 1}}
	w.deploy(t, p.app)
	for _, test := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"Logs", p.testLogs},
		{"Exec", p.testExec},
		{"Copy", p.testCopy},
		{"PortForward", p.testPortForward},
		{"UsersOwnPod", p.testUsersOwnPod},
		{"DeleteRestarts", p.testDeleteRestarts},
		{"RolloutUndo", p.testRolloutUndo},
		{"Lesson27 Events", p.testEvents},
		{"OthersCannot", p.testOthersCannot},
		{"Rights", p.testRights},
		{"SyncerAway", p.testSyncerAway},
		{"Moved", p.testMoved},
	} {
		t.Run(test.name, test.run)
	}
}

type podsWorld struct {
	*world
	app app
}

func (p *podsWorld) testLogs(t *testing.T) {
	pod := p.pod(t)
	const line = "version v1 listens on :8080"
	wantContains(t, "logs of the pod", p.kubectl(t, "logs", pod), line)
	wantContains(t, "logs of the deployment", p.kubectl(t, "logs", "deployment/demo", "-c", "demo", "--timestamps"), line, "T")
	if got := p.kubectl(t, "logs", pod, "--tail", "1"); strings.Count(got, "\n") != 1 {
		t.Errorf("--tail 1 gives %q", got)
	}
	_, errs, err := p.try(t, "logs", pod, "--previous")
	if err == nil {
		t.Error("--previous succeeds for a container that never ended")
	}
	wantContains(t, "--previous", errs, "previous terminated container", "not found")
	if _, errs, err = p.try(t, "logs", pod, "-c", "none"); err == nil {
		t.Error("-c none succeeds")
	}
	wantContains(t, "-c none", errs, "container none is not valid for pod")
}

func (p *podsWorld) testExec(t *testing.T) {
	pod := p.pod(t)
	for name, websockets := range map[string]string{"WebSocket": "true", "SPDY": "false"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
			if got := p.kubectl(t, "exec", pod, "--", "/demoapp", "print", "hi", "there"); got != "hi there\n" {
				t.Errorf("exec prints %q", got)
			}
			// More than a stream's window.
			input := strings.Repeat("0123456789abcdef", 1<<16)
			got, errs, err := p.tryIn(t, "root:shop", input, "exec", "-i", pod, "--", "/demoapp", "cat")
			if err != nil || got != input {
				t.Errorf("exec -i gives %d of %d bytes back, %v: %s", len(got), len(input), err, errs)
			}
			if got := p.inTerminal(t, "exec", "-it", pod, "--", "/demoapp", "print", "hi"); !strings.Contains(got, "hi\r\n") {
				t.Errorf("exec -it in a terminal shows %q", got)
			}
			_, _, err = p.try(t, "exec", pod, "--", "/demoapp", "exit")
			if code := new(exec.ExitError); !errors.As(err, &code) || code.ExitCode() != 3 {
				t.Errorf("the command's code is lost: %v, want 3", err)
			}
		})
	}
}

// kubectl cp is exec of tar, in both directions.
func (p *podsWorld) testCopy(t *testing.T) {
	pod, dir := p.pod(t), t.TempDir()
	// More than a stream's window, and nothing that compresses or repeats by chance.
	content := make([]byte, 1<<20)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range content {
		content[i] = byte(random.UintN(256))
	}
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.WriteFile(from, content, 0o600); err != nil {
		t.Fatal(err)
	}
	p.kubectl(t, "cp", from, pod+":/tmp/there")
	p.kubectl(t, "cp", pod+":/tmp/there", to)
	if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, content) {
		t.Errorf("a file that was copied there and back: %d bytes, %v; want the same %d", len(got), err, len(content))
	}
}

var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) -> 8080`)

func (p *podsWorld) testPortForward(t *testing.T) {
	pod := p.pod(t)
	b := p.start(t, "port-forward", "pod/"+pod, ":8080")
	var address string
	eventually(t, 20*time.Second, "port-forward listens", func() (bool, string) {
		match := forwarding.FindStringSubmatch(b.output())
		if match != nil {
			address = match[1]
		}
		return match != nil, b.output()
	})
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return p.f.DialContext(ctx, network, address)
		},
	}}
	for range 3 {
		resp, err := client.Get("http://demo/hello")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		wantContains(t, "through the forwarded port", string(body), "version=v1", "pod="+pod[:strings.LastIndex(pod, "-")], "greeting="+greeting)
	}
}

// A pod that the user made has no other name in the cluster.
func (p *podsWorld) testUsersOwnPod(t *testing.T) {
	p.kubectl(t, "run", "tool", "--image", "demo.local/app:v1")
	eventually(t, time.Minute, "the pod can be reached", func() (bool, string) {
		out, errs, err := p.try(t, "exec", "tool", "--", "/demoapp", "print", "mine")
		return err == nil && out == "mine\n", out + errs
	})
	p.kubectl(t, "delete", "pod", "tool", "--wait=false")
}

// Deleting a mirrored pod restarts the real one; who follows it sees its end.
func (p *podsWorld) testDeleteRestarts(t *testing.T) {
	pod := p.pod(t)
	follow, attached := p.start(t, "logs", "-f", pod), p.start(t, "attach", pod)
	eventually(t, 20*time.Second, "the log is followed", func() (bool, string) {
		return strings.Contains(follow.output(), "listens on"), follow.output()
	})
	eventually(t, 20*time.Second, "attached", func() (bool, string) {
		return strings.Contains(attached.output(), "If you don't see a command prompt"), attached.output()
	})
	p.kubectl(t, "delete", "pod", pod, "--wait=false")
	const last = "stopped"
	wantContains(t, "logs -f", follow.ends(t, 30*time.Second, "logs -f"), "asked to stop", last)
	wantContains(t, "attach", attached.ends(t, 30*time.Second, "attach"), "asked to stop", last)
	eventually(t, time.Minute, "another pod runs", func() (bool, string) {
		now := p.pod(t)
		return now != pod, now
	})
	eventually(t, time.Minute, "the old one is gone", func() (bool, string) {
		out, errs, err := p.try(t, "get", "pod", pod)
		return err != nil && strings.Contains(errs, "not found"), out + errs
	})
}

func (p *podsWorld) testRolloutUndo(t *testing.T) {
	p.kubectl(t, "rollout", "status", "deployment/demo", "--timeout", "60s")
	p.kubectl(t, "set", "image", "deployment/demo", "demo=demo.local/app:v2")
	p.kubectl(t, "annotate", "deployment/demo", "kubernetes.io/change-cause=to v2")
	p.kubectl(t, "rollout", "status", "deployment/demo", "--timeout", "60s")
	eventually(t, 20*time.Second, "both revisions are there", func() (bool, string) {
		out := p.kubectl(t, "rollout", "history", "deployment/demo")
		return strings.Contains(out, "\n1 ") && strings.Contains(out, "\n2 "), out
	})
	wantContains(t, "history of revision 1", p.kubectl(t, "rollout", "history", "deployment/demo", "--revision", "1"), "demo.local/app:v1")
	described := p.kubectl(t, "describe", "deployment", "demo")
	if !regexp.MustCompile(`NewReplicaSet: +demo-\S+ \(1/1 replicas created\)`).MatchString(described) || !regexp.MustCompile(`OldReplicaSets: +demo-\S+ \(0/0 replicas created\)`).MatchString(described) {
		t.Errorf("describe deployment does not tell the replica sets:\n%s", described)
	}
	p.kubectl(t, "rollout", "undo", "deployment/demo")
	p.kubectl(t, "rollout", "status", "deployment/demo", "--timeout", "60s")
	if image := p.kubectl(t, "get", "deployment", "demo", "-o", "jsonpath={.spec.template.spec.containers[0].image}"); image != "demo.local/app:v1" {
		t.Errorf("after undo the image is %q", image)
	}
	if annotations := p.kubectl(t, "get", "deployment", "demo", "-o", "jsonpath={.metadata.annotations}"); strings.Contains(annotations, "workload.kcp.io") {
		t.Errorf("undo wrote annotations of ours to the user's object: %s", annotations)
	}
	pod := p.pod(t)
	wantContains(t, "the pod after undo", p.kubectl(t, "logs", pod), "version v1 listens")
	wantContains(t, "describe pod", p.kubectl(t, "describe", "pod", pod), "Controlled By:  ReplicaSet/demo-")
	_, errs, err := p.try(t, "scale", "rs", "--all", "--replicas", "5")
	if err == nil {
		t.Error("a mirrored replica set can be scaled")
	}
	wantContains(t, "scale of a mirrored replica set", errs, "scale the deployment that it belongs to")
	if _, errs, err = p.try(t, "delete", "rs", "--all"); err == nil {
		t.Error("a mirrored replica set can be deleted")
	}
	wantContains(t, "delete of a mirrored replica set", errs, "mirrors from a physical cluster")
}

func (p *podsWorld) testEvents(t *testing.T) {
	p.kubectl(t, "create", "deployment", "broken", "--image", "127.0.0.1:9/none:v1")
	var described string
	eventually(t, time.Minute, "describe pod tells why", func() (bool, string) {
		described = p.kubectl(t, "describe", "pod", "-l", "app=broken")
		return strings.Contains(described, "Failed to pull image") && regexp.MustCompile("ErrImagePull|ImagePullBackOff").MatchString(described), described
	})
	if !regexp.MustCompile(`Controlled By: +ReplicaSet/broken-`).MatchString(described) {
		t.Errorf("describe pod does not tell who controls it:\n%s", described)
	}
	events := p.kubectl(t, "get", "events")
	wantContains(t, "get events", events, "Failed to pull image", "pod/broken-", "to a node")
	wantContains(t, "describe deployment", p.kubectl(t, "describe", "deployment", "broken"), "ScalingReplicaSet")
	// The physical cluster stays out of sight.
	for name, c := range p.clusters {
		nodes, err := c.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range nodes.Items {
			if regexp.MustCompile(`\b` + regexp.QuoteMeta(node.Name) + `\b`).MatchString(events) {
				t.Errorf("events name node %q of %s:\n%s", node.Name, name, events)
			}
		}
	}
	if regexp.MustCompile(`kcp-[a-v0-9]{20}`).MatchString(events) {
		t.Errorf("events name the downstream namespace:\n%s", events)
	}
	p.kubectl(t, "delete", "deployment", "broken")
	eventually(t, time.Minute, "its mirrors are gone", func() (bool, string) {
		out := p.kubectl(t, "get", "pods,rs", "-l", "app=broken", "-o", "name")
		return out == "", out
	})
}

// Another tenant, with a namespace and a pod of the same names, reaches their own only.
func (p *podsWorld) testOthersCannot(t *testing.T) {
	pod := p.pod(t)
	cut := strings.LastIndex(pod, "-")
	downstream, suffix := pod[:cut], pod[cut:]
	p.exec(t, "", "kubectl", "kcp", "workspace", "use", "root")
	p.exec(t, "", "kubectl", "kcp", "workspace", "create", "other")
	other := func(stdin string, args ...string) (string, string, error) {
		t.Helper()
		return p.tryIn(t, "root:other", stdin, args...)
	}
	if _, errs, err := other("", "create", "namespace", p.app.namespace); err != nil {
		t.Fatal(errs)
	}
	if _, errs, err := other("", "run", downstream, "--image", "demo.local/app:v2"); err != nil {
		t.Fatal(errs)
	}
	eventually(t, time.Minute, "the other tenant reads the log of their own pod", func() (bool, string) {
		out, errs, err := other("", "logs", downstream)
		return err == nil && strings.Contains(out, "version v2 listens"), out + errs
	})
	for _, args := range [][]string{{"logs", pod}, {"exec", pod, "--", "/demoapp", "print", "hi"}, {"port-forward", "pod/" + pod, ":8080"}} {
		out, errs, err := other("", args...)
		if err == nil {
			t.Errorf("the other tenant's %v gives %q", args, out)
		}
		wantContains(t, "the other tenant's "+args[0], errs, "NotFound")
	}
	// A pod that says that it is the mirror of the first tenant's.
	forged := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + downstream + suffix + ", labels: {workload.kcp.io/target: " + p.key(t) + "}}\n" +
		"spec: {containers: [{name: c, image: x}]}\n"
	_, errs, err := other(forged, "create", "-f", "-")
	if err == nil {
		t.Error("a tenant can make a mirrored pod")
	}
	wantContains(t, "a forged mirror", errs, "nobody else can write it")
}

// key returns the target key of the cluster that runs the application.
func (p *podsWorld) key(t *testing.T) string {
	t.Helper()
	return p.cluster(t).key
}

func (p *podsWorld) cluster(t *testing.T) *cluster {
	t.Helper()
	name, _, _ := strings.Cut(p.where(t, p.app.namespace), "=")
	return p.clusters[name]
}

func (p *podsWorld) testRights(t *testing.T) {
	pod := p.pod(t)
	p.apply(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- {nonResourceURLs: [/], verbs: [access]}
- {apiGroups: [""], resources: [pods, pods/log], verbs: [get]}
- {apiGroups: [""], resources: [pods/exec], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}]
`)
	eventually(t, 10*time.Second, "a reader reads the log", func() (bool, string) {
		out, errs, err := p.try(t, "--as", "reader", "logs", pod)
		return err == nil && strings.Contains(out, "listens"), out + errs
	})
	_, errs, err := p.try(t, "--as", "reader", "exec", pod, "--", "/demoapp", "print", "hi")
	if err == nil {
		t.Error("who may only get pods/exec can run a command")
	}
	wantContains(t, "exec of a reader", errs, "forbidden", "pods/exec")
	if _, errs, err = p.try(t, "--as", "reader", "port-forward", pod, ":8080"); err == nil {
		t.Error("who has no right to pods/portforward can forward")
	}
	wantContains(t, "port-forward of a reader", errs, "forbidden", "pods/portforward")
}

func (p *podsWorld) apply(t *testing.T, yaml string) {
	t.Helper()
	if _, errs, err := p.tryIn(t, "root:shop", yaml, "apply", "-f", "-"); err != nil {
		t.Fatalf("kubectl apply: %v: %s", err, errs)
	}
}

func (p *podsWorld) testSyncerAway(t *testing.T) {
	pod := p.pod(t)
	c := p.cluster(t)
	c.syncer.stop(syscall.SIGTERM)
	_, errs, err := p.try(t, "logs", pod)
	if err == nil {
		t.Error("logs succeed without a syncer")
	}
	wantContains(t, "logs without a syncer", errs, "is not connected at the moment")
	if _, errs, err = p.try(t, "exec", pod, "--", "/demoapp", "print", "hi"); err == nil {
		t.Error("exec succeeds without a syncer")
	}
	wantContains(t, "exec without a syncer", errs, "is not connected at the moment")
	c.syncer.start(t)
	eventually(t, time.Minute, "the log can be read again", func() (bool, string) {
		out, errs, err := p.try(t, "logs", pod)
		return err == nil && strings.Contains(out, "listens"), errs
	})
}

// After a drain the other cluster's pods are reached, and nothing of the first's is shown.
func (p *podsWorld) testMoved(t *testing.T) {
	from, to := p.sides(t, p.app)
	p.drain(t, from)
	p.settles(t, settleLimit, to, p.app)
	pod := p.pod(t)
	suffix := func(name string) string { return names.Mirror(p.clusters[name].key, "") }
	if !strings.HasSuffix(pod, suffix(to)) {
		t.Errorf("pod %s is not one of %s", pod, to)
	}
	wantContains(t, "logs after the move", p.kubectl(t, "logs", pod), "listens on")
	if got := p.kubectl(t, "exec", pod, "--", "/demoapp", "print", "moved"); got != "moved\n" {
		t.Errorf("exec after the move prints %q", got)
	}
	eventually(t, time.Minute, "the mirrors of the first cluster are gone", func() (bool, string) {
		out := p.kubectl(t, "get", "pods,rs,endpointslices", "-o", `jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}`)
		return !strings.Contains(out, suffix(from)) && strings.Contains(out, suffix(to)), out
	})
	p.uncordon(t, from)
}
