package controlplane

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/cache"
	basecompatibility "k8s.io/component-base/compatibility"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	kubecontrollermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controllermanageroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	kubescheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// controllers are those of kube-controller-manager that run: what workloads,
// their endpoints, node failure, RBAC and clean-up need, and nothing of
// storage, certificates or autoscaling.
var controllers = []string{
	names.ServiceAccountTokenController,
	names.ServiceAccountController,
	names.RootCACertificatePublisherController,
	names.NamespaceController,
	names.GarbageCollectorController,
	names.PodGarbageCollectorController,
	names.DeploymentController,
	names.ReplicaSetController,
	names.StatefulSetController,
	names.DaemonSetController,
	names.JobController,
	names.CronJobController,
	names.EndpointSliceController,
	names.DisruptionController,
	names.NodeLifecycleController,
	names.TaintEvictionController,
	names.ClusterRoleAggregationController,
	names.ResourceQuotaController,
}

// startEtcd returns once etcd serves.
func startEtcd(ctx context.Context, o *Options) (*embed.Etcd, error) {
	client, err := url.Parse(o.etcdURL())
	if err != nil {
		return nil, fmt.Errorf("cannot parse etcd URL %q: %w", o.etcdURL(), err)
	}
	peer := *client
	peer.Host = client.Hostname() + ":" + strconv.Itoa(o.EtcdPort+1)

	cfg := embed.NewConfig()
	cfg.Name = "physical"
	cfg.Dir = filepath.Join(o.DataDir, "etcd")
	cfg.LogLevel = "warn"
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	// The data outlives the process but need not outlive the machine.
	cfg.UnsafeNoFsync = !o.EtcdFsync

	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot start etcd in %q: %w", cfg.Dir, err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(time.Minute):
		err = fmt.Errorf("not ready after a minute")
	}
	etcd.Close()
	return nil, fmt.Errorf("cannot start etcd in %q: %w", cfg.Dir, err)
}

func apiServerArgs(o *Options) []string {
	return []string{
		"--etcd-servers=" + o.etcdURL(),
		"--bind-address=" + o.Address,
		// The default is the address of the default route, and there is none.
		"--advertise-address=" + o.Address,
		"--secure-port=" + strconv.Itoa(o.Port),
		// The reconciler would want the address in an EndpointSlice of the
		// kubernetes Service, which nothing here proxies.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + o.ServiceCIDR,
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--profiling=false",
		"--client-ca-file=" + o.pki(CACert),
		"--tls-cert-file=" + o.pki(ServingCert),
		"--tls-private-key-file=" + o.pki(ServingKey),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + o.pki(ServiceAccountKey),
		"--service-account-signing-key-file=" + o.pki(ServiceAccountKey),
		"--kubelet-certificate-authority=" + o.pki(CACert),
		"--kubelet-client-certificate=" + o.pki(AdminCert),
		"--kubelet-client-key=" + o.pki(AdminKey),
		"--kubelet-preferred-address-types=InternalIP",
	}
}

func runAPIServer(ctx context.Context, o *Options) error {
	s := apiserveroptions.NewServerRunOptions()
	if err := parse("kube-apiserver", s.Flags(), apiServerArgs(o)); err != nil {
		return err
	}
	registry := s.GenericServerRunOptions.ComponentGlobalsRegistry
	if err := registry.Set(); err != nil {
		return fmt.Errorf("cannot set feature gates: %w", err)
	}
	if err := logsapi.ValidateAndApply(s.Logs, registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)); err != nil {
		return fmt.Errorf("cannot apply logging options: %w", err)
	}
	completed, err := s.Complete(ctx)
	if err != nil {
		return fmt.Errorf("cannot complete kube-apiserver options: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return fmt.Errorf("invalid kube-apiserver options: %w", errors.NewAggregate(errs))
	}
	return ended(ctx, "kube-apiserver", kubeapiserver.Run(ctx, completed))
}

func controllerManagerArgs(o *Options) []string {
	return []string{
		"--kubeconfig=" + o.Kubeconfig,
		"--leader-elect=false",
		"--secure-port=0",
		"--profiling=false",
		"--controllers=" + strings.Join(controllers, ","),
		"--root-ca-file=" + o.pki(CACert),
		"--service-account-private-key-file=" + o.pki(ServiceAccountKey),
		"--use-service-account-credentials=false",
	}
}

func runControllerManager(ctx context.Context, o *Options) error {
	s, err := controllermanageroptions.NewKubeControllerManagerOptions()
	if err != nil {
		return fmt.Errorf("cannot make kube-controller-manager options: %w", err)
	}
	known, disabled, aliases := kubecontrollermanager.KnownControllers(), kubecontrollermanager.ControllersDisabledByDefault(), kubecontrollermanager.ControllerAliases()
	if err := parse("kube-controller-manager", s.Flags(known, disabled, aliases), controllerManagerArgs(o)); err != nil {
		return err
	}
	c, err := s.Config(ctx, known, disabled, aliases)
	if err != nil {
		return fmt.Errorf("cannot configure kube-controller-manager: %w", err)
	}
	return ended(ctx, "kube-controller-manager", kubecontrollermanager.Run(ctx, c.Complete()))
}

func schedulerArgs(o *Options) []string {
	return []string{
		"--kubeconfig=" + o.Kubeconfig,
		"--leader-elect=false",
		"--secure-port=0",
		"--profiling=false",
	}
}

func runScheduler(ctx context.Context, o *Options) error {
	s := scheduleroptions.NewOptions()
	if err := parse("kube-scheduler", *s.Flags, schedulerArgs(o)); err != nil {
		return err
	}
	informerName, err := cache.NewInformerName("kube-scheduler")
	if err != nil {
		return fmt.Errorf("cannot name the informers of kube-scheduler: %w", err)
	}
	s.InformerName = informerName
	completed, scheduler, err := kubescheduler.Setup(ctx, s)
	if err != nil {
		return fmt.Errorf("cannot configure kube-scheduler: %w", err)
	}
	return ended(ctx, "kube-scheduler", kubescheduler.Run(ctx, completed, scheduler))
}
