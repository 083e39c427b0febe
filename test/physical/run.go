package physical

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
)

// ensure starts a component in the namespaces of the cluster unless it runs, and
// says whether it did.
func (c *Cluster) ensure(component, name string, args ...string) (started bool, err error) {
	p, err := recorded(c.record(component))
	if err != nil || p.alive() {
		return false, err
	}
	cmd, err := c.command(name, args...)
	if err != nil {
		return false, err
	}
	_, err = c.start(cmd, component)
	return err == nil, err
}

// command prepares a command to run in the network and mount namespaces of the
// cluster. nsenter executes it in its own place, with the same pid.
func (c *Cluster) command(name string, args ...string) (*exec.Cmd, error) {
	p, err := recorded(c.record(holder))
	if err != nil {
		return nil, err
	}
	if !p.alive() {
		return nil, fmt.Errorf("cluster %q has no mount namespace any more: stop and start it", c.name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("cannot find %q: %w", name, err)
	}
	return exec.Command("nsenter", append([]string{
		"--net=" + c.fixture.netns().path(),
		"--mount=" + filepath.Join("/proc", strconv.Itoa(p.Pid), "ns", "mnt"),
		"--", path,
	}, args...)...), nil
}

// start runs a prepared command as a component of the cluster. Nothing of this
// process's environment reaches it but the search path.
func (c *Cluster) start(cmd *exec.Cmd, component string) (process, error) {
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "HOME=" + c.path()}
	cmd.Dir = "/"
	p, err := start(cmd, c.LogFile(component), c.record(component))
	if err != nil {
		return p, fmt.Errorf("cannot start %s of cluster %q: %w", component, c.name, err)
	}
	return p, nil
}

// waitFor polls check until it returns nil. It gives up when ctx is done or one
// of the components it depends on has ended, and then shows the end of the log
// that explains it.
func (c *Cluster) waitFor(ctx context.Context, what string, components []string, check func(context.Context) error) error {
	ticker := time.NewTicker(2 * pollInterval)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		for _, component := range components {
			pid, pidErr := c.Pid(component)
			if pidErr != nil {
				return pidErr
			}
			if pid == 0 && ctx.Err() == nil {
				return fmt.Errorf("cluster %q: %s ended while waiting for its %s (%w)\n%s", c.name, component, what, err, c.tail(component))
			}
		}
		select {
		case <-ctx.Done():
			// Cancelled because another part failed, which has its own error.
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("cluster %q: %s is not ready in time: %w\n%s", c.name, what, err, c.tail(components[len(components)-1]))
		case <-ticker.C:
		}
	}
}

// tailLines is how much of a log is shown with an error.
const tailLines = 15

// tail returns the end of a component's log with its path above it.
func (c *Cluster) tail(component string) string {
	path := c.LogFile(component)
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("the last lines of %s:\n%s", path, lastLines(string(data), tailLines))
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	for i, line := range lines {
		lines[i] = "    " + line
	}
	return strings.Join(lines, "\n")
}

// client is used for readiness only, and impatient.
func (c *Cluster) client() (kubernetes.Interface, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.Timeout = 5 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot use kubeconfig of cluster %q: %w", c.name, err)
	}
	return client, nil
}

// halt kills everything that is the cluster's and drops what containerd kept for
// as long as the machine is up. It needs none of the components.
func (c *Cluster) halt(ctx context.Context) error {
	t, err := c.territory()
	if err != nil {
		return err
	}
	if err := t.clear(ctx, stopGrace); err != nil {
		return fmt.Errorf("cannot stop cluster %q: %w", c.name, err)
	}
	// A process that is about to end has left its namespaces and is not found in
	// the territory any more, nor is any if the network namespace has lost its
	// name.
	for _, component := range append(Components(), holder) {
		p, err := recorded(c.record(component))
		if err != nil {
			return err
		}
		if err := p.stop(ctx, stopGrace); err != nil {
			return fmt.Errorf("cannot stop %s of cluster %q: %w", component, c.name, err)
		}
	}
	// The kernel may need a moment to empty the cgroup of a process that has
	// ended.
	var failed error
	err = waitUntil(ctx, stopGrace, func() bool {
		failed = removeCgroups(cgroupFS, t.containers())
		return failed == nil
	})
	if err != nil {
		return fmt.Errorf("cannot clean up after cluster %q: %w", c.name, failed)
	}
	for _, name := range []string{"containerd-run", "containerd.sock", "containerd.sock.ttrpc", "mount-namespace"} {
		if err := os.RemoveAll(c.path(name)); err != nil {
			return fmt.Errorf("cannot remove state of cluster %q: %w", c.name, err)
		}
	}
	return nil
}

// remove halts the cluster and deletes its data. Logs stay.
func (c *Cluster) remove(ctx context.Context) error {
	if err := c.halt(ctx); err != nil {
		return err
	}
	entries, err := os.ReadDir(c.path())
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("cannot list state of cluster %q: %w", c.name, err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".log") {
			continue
		}
		if err := os.RemoveAll(c.path(e.Name())); err != nil {
			return fmt.Errorf("cannot remove state of cluster %q: %w", c.name, err)
		}
	}
	c.fixture.logf("%s is down", c.name)
	return nil
}
