package syncer

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	podsecurity "k8s.io/pod-security-admission/api"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

// Options are the syncer's flags.
type Options struct {
	// FromKubeconfig leads to the SyncTarget's virtual workspace.
	FromKubeconfig string
	// ToKubeconfig leads to the physical cluster; empty means the one it runs in.
	ToKubeconfig string

	SyncTargetName    string
	SyncTargetUID     string
	SyncTargetCluster string

	// InstanceID marks what the syncer makes; it defaults to the target key.
	InstanceID string
	// Namespace is the syncer's own in the physical cluster. It holds the lease and the
	// service account.
	Namespace   string
	LeaderElect bool
	// PodSecurity is the Pod Security Standard that namespaces of tenants enforce:
	// privileged, baseline or restricted.
	PodSecurity string
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{LeaderElect: true, PodSecurity: string(podsecurity.LevelBaseline)}
}

// AddFlags adds the flags to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.FromKubeconfig, "from-kubeconfig", o.FromKubeconfig, "Kubeconfig of the control plane. Its server is the address of the sync target's virtual workspace.")
	fs.StringVar(&o.ToKubeconfig, "to-kubeconfig", o.ToKubeconfig, "Kubeconfig of the physical cluster. Empty: the cluster that the syncer runs in.")
	fs.StringVar(&o.SyncTargetName, "sync-target-name", o.SyncTargetName, "Name of the SyncTarget.")
	fs.StringVar(&o.SyncTargetUID, "sync-target-uid", o.SyncTargetUID, "UID of the SyncTarget.")
	fs.StringVar(&o.SyncTargetCluster, "sync-target-cluster", o.SyncTargetCluster, "Id of the logical cluster of the SyncTarget.")
	fs.StringVar(&o.InstanceID, "instance-id", o.InstanceID, "Value of label "+names.SyncerLabel+" on all that the syncer makes. Default: made from the SyncTarget's cluster and UID.")
	fs.StringVar(&o.Namespace, "namespace", o.Namespace, "Namespace of the syncer in the physical cluster, with its service account and its lease. Default: "+names.SyncerNamespace("<instance id>")+".")
	fs.StringVar(&o.PodSecurity, "pod-security", o.PodSecurity, "Pod Security Standard that namespaces of tenants enforce here: privileged, baseline or restricted. With privileged, tenants can take over nodes and with them each other's pods.")
	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "Hold a lease in the physical cluster while working, so that several replicas can run.")
}

// CompletedOptions can only come from Complete.
type CompletedOptions struct{ *completedOptions }

type completedOptions struct{ Options }

// Complete fills in what follows from other options.
func (o *Options) Complete() CompletedOptions {
	c := &completedOptions{Options: *o}
	if c.InstanceID == "" && c.SyncTargetUID != "" {
		c.InstanceID = names.InstanceID(logicalcluster.Name(c.SyncTargetCluster), types.UID(c.SyncTargetUID))
	}
	if c.Namespace == "" {
		c.Namespace = names.SyncerNamespace(c.InstanceID)
	}
	return CompletedOptions{c}
}

// Validate names everything that is wrong.
func (o CompletedOptions) Validate() error {
	var errs []error
	for _, required := range []struct{ flag, value string }{
		{"from-kubeconfig", o.FromKubeconfig},
		{"sync-target-name", o.SyncTargetName},
		{"sync-target-uid", o.SyncTargetUID},
		{"sync-target-cluster", o.SyncTargetCluster},
	} {
		if required.value == "" {
			errs = append(errs, fmt.Errorf("--%s is required", required.flag))
		}
	}
	if o.SyncTargetCluster != "" && !logicalcluster.Name(o.SyncTargetCluster).Valid() {
		errs = append(errs, fmt.Errorf("--sync-target-cluster %q is no logical cluster's id", o.SyncTargetCluster))
	}
	if _, err := podsecurity.ParseLevel(o.PodSecurity); err != nil {
		errs = append(errs, fmt.Errorf("--pod-security %q: %w", o.PodSecurity, err))
	}
	return errors.Join(errs...)
}

// Config is what a Syncer is made of.
type Config struct {
	Upstream   *rest.Config
	Downstream *rest.Config

	identity    identity
	leaderElect bool
	// holder names this process in the lease.
	holder string
}

// Config reads the kubeconfigs.
func (o CompletedOptions) Config() (*Config, error) {
	up, err := clientcmd.BuildConfigFromFlags("", o.FromKubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cannot read --from-kubeconfig %q: %w", o.FromKubeconfig, err)
	}
	down, err := downstreamConfig(o.ToKubeconfig)
	if err != nil {
		return nil, err
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("cannot read the host's name: %w", err)
	}
	cluster, uid := logicalcluster.Name(o.SyncTargetCluster), types.UID(o.SyncTargetUID)
	return &Config{
		Upstream:   up,
		Downstream: down,
		identity: identity{
			name: o.SyncTargetName, uid: uid, cluster: cluster,
			targetKey:  workloadv1alpha1.TargetKey(cluster, uid),
			instanceID: o.InstanceID, podSecurity: o.PodSecurity,
			account: types.NamespacedName{Namespace: o.Namespace, Name: names.ServiceAccount},
		},
		leaderElect: o.LeaderElect,
		holder:      hostname + "_" + string(uuid.NewUUID()),
	}, nil
}

func downstreamConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("cannot find the physical cluster, give --to-kubeconfig: %w", err)
		}
		return cfg, nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cannot read --to-kubeconfig %q: %w", kubeconfig, err)
	}
	return cfg, nil
}
