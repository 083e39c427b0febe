// Package controlplane runs a whole Kubernetes control plane in one process:
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler, unmodified
// and started from the flags their own binaries would be given. One process
// needs about 40 % less memory than four and one binary links their shared
// code once.
//
// The components' cobra constructors are not used: each of them claims the
// process's signal handler, which only one may do. Everything here ends with
// the context given to Run instead. The components share process globals
// (feature gates, the component registry, klog), so a process may run this
// once only.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
)

// File names below Options.PKIDir. All are PEM; ServiceAccountKey holds the
// private key that signs service account tokens.
const (
	CACert            = "ca.crt"
	ServingCert       = "apiserver.crt"
	ServingKey        = "apiserver.key"
	AdminCert         = "admin.crt"
	AdminKey          = "admin.key"
	ServiceAccountKey = "sa.key"
)

// Options says where the control plane keeps its data and what it listens on.
type Options struct {
	// DataDir holds etcd's data and survives restarts.
	DataDir string
	// PKIDir holds the files named by the constants of this package.
	PKIDir string
	// Kubeconfig is what the controller manager and the scheduler use.
	Kubeconfig string
	// Address and Port are where the API server listens and how it is
	// advertised.
	Address string
	Port    int
	// EtcdPort is etcd's client port on 127.0.0.1; its peer port is the next.
	EtcdPort int
	// EtcdFsync makes etcd write to the disk before it answers, as in production.
	// Benchmarks want it; a test's cluster is faster without.
	EtcdFsync bool
	// ServiceCIDR is the range of the cluster IPs. Its first address has to be
	// one of this machine, for the API server's Service.
	ServiceCIDR string
}

// AddFlags registers the options on fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.DataDir, "data-dir", o.DataDir, "directory of etcd's data")
	fs.StringVar(&o.PKIDir, "pki-dir", o.PKIDir, "directory of certificates and keys")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig of the controller manager and the scheduler")
	fs.StringVar(&o.Address, "address", o.Address, "address the API server listens on and advertises")
	fs.IntVar(&o.Port, "port", o.Port, "port of the API server")
	fs.IntVar(&o.EtcdPort, "etcd-port", o.EtcdPort, "client port of etcd on 127.0.0.1; the next one is its peer port")
	fs.BoolVar(&o.EtcdFsync, "etcd-fsync", o.EtcdFsync, "sync etcd's writes to the disk; without it a crash of the machine loses data")
	fs.StringVar(&o.ServiceCIDR, "service-cidr", o.ServiceCIDR, "range of the cluster IPs")
}

// Validate returns an error that names the first option that cannot work.
func (o *Options) Validate() error {
	for flag, v := range map[string]string{"data-dir": o.DataDir, "pki-dir": o.PKIDir, "kubeconfig": o.Kubeconfig, "service-cidr": o.ServiceCIDR} {
		if v == "" {
			return fmt.Errorf("--%s is required", flag)
		}
	}
	ip := net.ParseIP(o.Address)
	if ip == nil || ip.IsUnspecified() {
		return fmt.Errorf("--address %q is not an IP address of this machine", o.Address)
	}
	if o.Port <= 0 || o.EtcdPort <= 0 {
		return fmt.Errorf("--port and --etcd-port have to be set, got %d and %d", o.Port, o.EtcdPort)
	}
	_, err := o.serviceAddress()
	return err
}

func (o *Options) pki(name string) string { return filepath.Join(o.PKIDir, name) }

func (o *Options) etcdURL() string {
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(o.EtcdPort))
}

// shutdownGrace is how long the components may take to end. Asked to stop, an
// API server serves open watches for a minute, which here would only hide from
// clients that it is going.
const shutdownGrace = 3 * time.Second

// Run starts the components in the order they need each other and blocks until
// ctx is done or one of them fails. Then they get a moment to end. The process
// should end after it returns.
func Run(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	// Each component applies the (identical) logging configuration.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	// As every component's own command does for its clients.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})

	etcd, err := startEtcd(ctx, &o)
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return runAPIServer(ctx, &o) })
	group.Go(func() error {
		if err := waitForAPIServer(ctx, &o); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("API server is ready, starting controller manager and scheduler")
		group.Go(func() error { return runControllerManager(ctx, &o) })
		group.Go(func() error { return runScheduler(ctx, &o) })
		group.Go(func() error { return runForwarder(ctx, &o) })
		return nil
	})
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case err := <-etcd.Err():
			return fmt.Errorf("etcd failed: %w", err)
		}
	})
	done := make(chan error, 1)
	go func() {
		err := group.Wait()
		etcd.Close()
		done <- err
	}()
	<-ctx.Done()
	select {
	case err := <-done:
		return err
	case <-time.After(shutdownGrace):
		// etcd is left to end with the process, which it is made for: it would
		// wait for its clients, too.
		// The cause is the failure of a component, if that is why it ends.
		if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}
}

// waitForAPIServer returns once /readyz says ok.
func waitForAPIServer(ctx context.Context, o *Options) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("cannot use kubeconfig %q: %w", o.Kubeconfig, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot use kubeconfig %q: %w", o.Kubeconfig, err)
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		if _, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// parse gives args to the flags of a component.
func parse(component string, sets cliflag.NamedFlagSets, args []string) error {
	fs := pflag.NewFlagSet(component, pflag.ContinueOnError)
	fs.SetOutput(os.Stderr)
	for _, f := range sets.FlagSets {
		fs.AddFlagSet(f)
	}
	if err := fs.Parse(args); err != nil {
		return fmt.Errorf("cannot parse flags of %s: %w", component, err)
	}
	return nil
}

// ended turns the way a component's Run returned into the result of its
// goroutine: returning early is a failure, whatever it says, and being asked to
// stop is not.
func ended(ctx context.Context, component string, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // an end that was asked for
	}
	if err == nil {
		err = errors.New("ended by itself")
	}
	return fmt.Errorf("%s: %w", component, err)
}
