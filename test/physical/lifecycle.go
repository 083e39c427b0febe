package physical

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Components of a cluster, which are also the names of their logs.
const (
	ControlPlane = "controlplane"
	Containerd   = "containerd"
	Kubelet      = "kubelet"
	// holder does nothing but keep the mount namespace.
	holder = "holder"
)

// Components returns the names of what runs in every cluster, in the order it is
// started.
func Components() []string { return []string{ControlPlane, Containerd, Kubelet} }

// stopGrace is how long a component may take to end before it is killed, and
// how long the kernel may take to let go of what was killed.
const stopGrace = 15 * time.Second

func (c *Cluster) known(component string) error {
	if !slices.Contains(Components(), component) {
		return fmt.Errorf("unknown component %q, want one of %q", component, Components())
	}
	return nil
}

// up starts what does not run.
func (c *Cluster) up(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.fixture.opts.Timeout)
	defer cancel()
	if err := os.MkdirAll(c.path(), 0o755); err != nil {
		return fmt.Errorf("cannot make directory of cluster %q: %w", c.name, err)
	}
	for _, step := range []func() error{
		c.ensurePKI,
		c.writeConfigs,
		func() error { return c.ensureHolder(ctx) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("cannot prepare cluster %q: %w", c.name, err)
		}
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.ensureControlPlane(groupCtx, client) })
	group.Go(func() error { return c.ensureContainerd(groupCtx) })
	if err := group.Wait(); err != nil {
		return err
	}
	if err := c.ensureKubelet(ctx, client); err != nil {
		return err
	}
	c.fixture.logf("%s is ready (%s)", c.name, time.Since(began).Round(100*time.Millisecond))
	return nil
}

// ensureHolder makes the mount namespace. What may still be in an old one,
// whose holder has died, is cleared first.
func (c *Cluster) ensureHolder(ctx context.Context) error {
	p, err := recorded(c.record(holder))
	if err != nil || p.alive() {
		return err
	}
	if err := c.halt(ctx); err != nil {
		return err
	}
	// Mounted over below, so that nothing is written into them on the machine.
	// The paths are built into containerd and the kubelet.
	private := []string{"/run/containerd", "/var/lib/cni", "/var/log"}
	script := []string{}
	// runc and crun do not expect both versions of cgroups.
	if isHybrid(cgroupFS) {
		script = append(script, "umount "+filepath.Join(cgroupFS, "unified"))
	}
	for _, dir := range private {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("cannot make mount point: %w", err)
		}
		script = append(script, "mount -t tmpfs -o mode=755 tmpfs "+dir)
	}
	script = append(script, "exec sleep infinity")

	cmd := exec.Command("nsenter", "--net="+c.fixture.netns().path(), "--",
		"unshare", "--mount", "--propagation", "private", "--", "sh", "-e", "-c", strings.Join(script, "\n"))
	p, err = c.start(cmd, holder)
	if err != nil {
		return err
	}
	proc := filepath.Join("/proc", strconv.Itoa(p.Pid))
	err = c.waitFor(ctx, "mount namespace", []string{holder}, func(context.Context) error {
		comm, err := os.ReadFile(filepath.Join(proc, "comm"))
		if err != nil {
			return err
		}
		if got := strings.TrimSpace(string(comm)); got != "sleep" {
			return fmt.Errorf("still at %q", got)
		}
		return nil
	})
	if err != nil {
		return err
	}
	ns, err := os.Readlink(filepath.Join(proc, "ns", "mnt"))
	if err != nil {
		return fmt.Errorf("cannot identify mount namespace: %w", err)
	}
	if err := os.WriteFile(c.path("mount-namespace"), []byte(ns), 0o600); err != nil {
		return fmt.Errorf("cannot record mount namespace: %w", err)
	}
	return nil
}

func (c *Cluster) ensureControlPlane(ctx context.Context, client kubernetes.Interface) error {
	began := time.Now()
	_, err := c.ensure(ControlPlane, filepath.Join(c.fixture.opts.BinDir, "physical"), "controlplane",
		"--data-dir="+c.path("data"),
		"--pki-dir="+c.pkiDir(),
		"--kubeconfig="+c.Kubeconfig(),
		"--address="+c.Address(),
		"--port="+strconv.Itoa(apiServerPort),
		"--etcd-port="+strconv.Itoa(c.etcdPort()),
		"--service-cidr="+c.serviceCIDR(),
	)
	if err != nil {
		return err
	}
	err = c.waitFor(ctx, "API server", []string{ControlPlane}, func(ctx context.Context) error {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
	if err != nil {
		return err
	}
	c.fixture.logf("%s: control plane is ready (%s)", c.name, time.Since(began).Round(100*time.Millisecond))
	return nil
}

func (c *Cluster) ensureContainerd(ctx context.Context) error {
	began := time.Now()
	_, err := c.ensure(Containerd, "containerd", "--config="+c.path("containerd.toml"), "--log-level=warn")
	if err != nil {
		return err
	}
	err = c.waitFor(ctx, "containerd", []string{Containerd}, func(ctx context.Context) error {
		return run(ctx, "ctr", "--address="+c.socket(), "--connect-timeout=1s", "version")
	})
	if err != nil {
		return err
	}
	// ctr does the mounts of unpacking itself and has to be where containerd is.
	importImages, err := c.command("ctr", "--address="+c.socket(), "--namespace=k8s.io",
		"images", "import", "--snapshotter="+c.snapshotter(), c.fixture.imagesPath())
	if err != nil {
		return err
	}
	if out, err := importImages.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot import images into cluster %q: %w: %s", c.name, err, strings.TrimSpace(string(out)))
	}
	c.fixture.logf("%s: containerd is ready, images are imported (%s)", c.name, time.Since(began).Round(100*time.Millisecond))
	return nil
}

// ensureKubelet comes after the other components: a kubelet that finds them
// missing waits longer and longer before it looks again.
func (c *Cluster) ensureKubelet(ctx context.Context, client kubernetes.Interface) error {
	began := time.Now()
	started, err := c.ensure(Kubelet, filepath.Join(c.fixture.opts.BinDir, "physical"), "kubelet",
		"--config="+c.path("kubelet.json"),
		"--kubeconfig="+c.path("node.kubeconfig"),
		"--hostname-override="+c.NodeName(),
		"--node-ip="+c.Address(),
		"--root-dir="+c.path("kubelet"),
		"--cert-dir="+c.path("kubelet", "pki"),
	)
	if err != nil {
		return err
	}
	since := time.Time{}
	if started {
		// The API rounds down to seconds.
		since = began.Truncate(time.Second)
	}
	err = c.waitFor(ctx, "node", []string{ControlPlane, Containerd, Kubelet}, func(ctx context.Context) error {
		return c.usable(ctx, client, since)
	})
	if err != nil {
		return err
	}
	c.fixture.logf("%s: node is ready (%s)", c.name, time.Since(began).Round(100*time.Millisecond))
	return nil
}

// usable returns nil if the node has been ready at or after since, and pods can
// be created.
func (c *Cluster) usable(ctx context.Context, client kubernetes.Interface, since time.Time) error {
	node, err := client.CoreV1().Nodes().Get(ctx, c.NodeName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(node.Status.Conditions, func(cond corev1.NodeCondition) bool { return cond.Type == corev1.NodeReady })
	if i < 0 {
		return errors.New("node has not reported yet")
	}
	ready := node.Status.Conditions[i]
	if ready.Status != corev1.ConditionTrue {
		return fmt.Errorf("node is not ready: %s", ready.Message)
	}
	if ready.LastHeartbeatTime.Time.Before(since) {
		return errors.New("node has not reported since its kubelet was started")
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectNoSchedule && taint.Key == corev1.TaintNodeNotReady {
			return errors.New("node is still tainted as not ready")
		}
	}
	_, err = client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	return err
}
