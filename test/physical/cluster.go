package physical

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is one cluster of a fixture.
//
// Cluster number i, counted from 1, has node address 10.200.0.i, pods in
// 10.(200+i).2.0/24 and cluster IPs in 10.(100+i).0.0/16; its API server
// listens on port 16443 of the node address and its etcd on port
// 12379+10*i of 127.0.0.1, where pods cannot reach it.
type Cluster struct {
	fixture *Fixture
	name    string
	number  int
}

const apiServerPort = 16443

// Name is the name the cluster was given.
func (c *Cluster) Name() string { return c.name }

// Kubeconfig is the path of a kubeconfig that is cluster-admin. Its server
// answers in the fixture's network namespace only.
func (c *Cluster) Kubeconfig() string { return c.path("kubeconfig") }

// Server is the URL of the API server.
func (c *Cluster) Server() string {
	return "https://" + net.JoinHostPort(c.Address(), strconv.Itoa(apiServerPort))
}

// RESTConfig is the content of Kubeconfig for use in this process, from outside
// the network namespace.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("cannot use kubeconfig of cluster %q: %w", c.name, err)
	}
	config.Dial = c.fixture.DialContext
	return config, nil
}

// NodeName is the name of the only node.
func (c *Cluster) NodeName() string { return c.name + "-node1" }

// Address is the address of the node and of the API server.
func (c *Cluster) Address() string { return fmt.Sprintf("10.200.0.%d", c.number) }

// PodCIDR is the range of the pod addresses.
func (c *Cluster) PodCIDR() string { return fmt.Sprintf("10.%d.2.0/24", 200+c.number) }

// LogFile is the path of a component's log.
func (c *Cluster) LogFile(component string) string { return c.path(component + ".log") }

func (c *Cluster) serviceCIDR() string { return fmt.Sprintf("10.%d.0.0/16", 100+c.number) }

func (c *Cluster) serviceIP(n int) string { return fmt.Sprintf("10.%d.0.%d", 100+c.number, n) }

func (c *Cluster) etcdPort() int { return 12379 + 10*c.number }

// bridge is the name of the network device the pods are attached to.
func (c *Cluster) bridge() string { return fmt.Sprintf("pods%d", c.number) }

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.fixture.opts.Dir, c.name}, elem...)...)
}

func (c *Cluster) pkiDir() string { return c.path("pki") }

func (c *Cluster) socket() string { return c.path("containerd.sock") }

func (c *Cluster) record(component string) string { return c.path(component + ".pid") }

func (c *Cluster) territory() (territory, error) {
	t := territory{tasks: c.path("containerd-run", "io.containerd.runtime.v2.task", "k8s.io")}
	var err error
	if t.netNS, err = c.fixture.netns().id(); err != nil {
		return t, err
	}
	ns, err := os.ReadFile(c.path("mount-namespace"))
	if err != nil && !os.IsNotExist(err) {
		return t, fmt.Errorf("cannot read mount namespace of cluster %q: %w", c.name, err)
	}
	t.mountNS = string(ns)
	return t, nil
}

// Stop stops components, or with none given the whole cluster with its pods, as
// if its machine had been switched off. Data stays, and Start brings the cluster
// back.
func (c *Cluster) Stop(ctx context.Context, components ...string) error {
	unlock, err := c.fixture.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if len(components) == 0 {
		return c.halt(ctx)
	}
	for _, name := range components {
		if err := c.known(name); err != nil {
			return err
		}
		p, err := recorded(c.record(name))
		if err != nil {
			return err
		}
		if err := p.stop(ctx, stopGrace); err != nil {
			return fmt.Errorf("cannot stop %s of cluster %q: %w", name, c.name, err)
		}
	}
	return nil
}

// Start starts what does not run and waits until the node is ready.
func (c *Cluster) Start(ctx context.Context) error {
	unlock, err := c.fixture.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return c.up(ctx)
}

// Pid returns the process id of a component, or 0 if it does not run.
func (c *Cluster) Pid(component string) (int, error) {
	p, err := recorded(c.record(component))
	if err != nil || !p.alive() {
		return 0, err
	}
	return p.Pid, nil
}
