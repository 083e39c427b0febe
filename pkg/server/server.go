package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	authenticationrest "k8s.io/kubernetes/pkg/registry/authentication/rest"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"

	"github.com/13eedeaf/kcp/pkg/server/authn"
	"github.com/13eedeaf/kcp/pkg/server/authz"
	"github.com/13eedeaf/kcp/pkg/server/crds"
	"github.com/13eedeaf/kcp/pkg/server/etcd"
	"github.com/13eedeaf/kcp/pkg/server/native"
	"github.com/13eedeaf/kcp/pkg/server/options"
	"github.com/13eedeaf/kcp/pkg/server/pki"
)

// serviceAccountIssuer is the issuer in service account tokens. It is a name, not an
// address: a server that moves keeps its tokens valid.
const serviceAccountIssuer = "https://kubernetes.default.svc"

// etcdTimeout is how long an external etcd may take to answer when the server starts.
const etcdTimeout = 10 * time.Second

// abandonAfter is how long a server whose etcd has failed takes to end in good order. Most of
// what it would wait for waits for etcd itself, which will never answer.
const abandonAfter = 5 * time.Second

// Server is an assembled server. New makes it, Run runs it once.
type Server struct {
	// URL is the base URL at which clients reach the server.
	URL string
	// Loopback is the configuration of the server's own client, which may do anything.
	Loopback *rest.Config
	// PKI are the server's keys and certificates.
	PKI *pki.PKI

	generic *genericapiserver.GenericAPIServer
	parts   *parts
	runCRDs func(context.Context)
	ready   chan struct{}
	close   []func()
	// etcd is nil when an external one is used.
	etcd *etcd.Server
}

// New takes the root directory, starts the embedded etcd where none is named, and
// assembles the server. The caller must Close it when it does not Run it.
func New(ctx context.Context, o options.Completed) (_ *Server, err error) {
	s := &Server{URL: o.URL, ready: make(chan struct{})}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	lock, err := lockRoot(o.RootDirectory)
	if err != nil {
		return nil, err
	}
	s.closeLater(func() { _ = lock.Close() })
	if err := portFree(ctx, o.ControlPlane.SecureServing.BindAddress, o.ControlPlane.SecureServing.BindPort); err != nil {
		return nil, err
	}
	if err := s.preparePKI(o); err != nil {
		return nil, err
	}
	if err := s.prepareEtcd(ctx, o); err != nil {
		return nil, err
	}
	upstream, err := o.ControlPlane.Complete(ctx, nil, nil)
	if err != nil {
		return nil, err
	}
	cfg, err := newConfig(upstream)
	if err != nil {
		return nil, err
	}
	s.closeLater(cfg.registry.Close)
	s.Loopback = cfg.loopback()
	etcdClient, err := newEtcdClient(o)
	if err != nil {
		return nil, err
	}
	s.closeLater(func() { _ = etcdClient.Close() })
	s.parts, err = newParts(o, cfg, content{registry: cfg.registry, client: etcdClient})
	if err != nil {
		return nil, err
	}
	if s.parts.authenticator, err = newAuthenticator(ctx, o, s.PKI, cfg, s.parts.provider); err != nil {
		return nil, err
	}
	if cfg.controlPlane.ServiceAccountIssuer, err = authn.NewTokenGenerator(serviceAccountIssuer, s.PKI.ServiceAccountKey); err != nil {
		return nil, err
	}
	cfg.complete(s.parts.deps())
	return s, s.assemble(ctx, cfg)
}

// assemble makes upstream's server and installs all APIs on it.
func (s *Server) assemble(ctx context.Context, cfg *config) error {
	completed := cfg.controlPlane.Complete()
	cp, err := completed.New("kcp", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return err
	}
	s.generic = cp.GenericAPIServer
	client, err := kubernetes.NewForConfig(s.Loopback)
	if err != nil {
		return err
	}
	generic, err := completed.GenericStorageProviders(client.Discovery())
	if err != nil {
		return err
	}
	for i, p := range generic {
		switch p := p.(type) {
		case authenticationrest.RESTStorageProvider:
			generic[i] = authn.StorageProvider{RESTStorageProvider: p}
		case rbacrest.RESTStorageProvider:
			generic[i] = authz.StorageProvider{RESTStorageProvider: p, Registry: cfg.registry}
		}
	}
	if err := cp.InstallAPIs(native.Providers(generic, s.parts.podAccess())...); err != nil {
		return err
	}
	g := cfg.controlPlane.Generic
	s.runCRDs, err = crds.Install(s.generic, crds.Config{
		RESTOptions:       cfg.crdRESTOptions,
		Admission:         g.AdmissionControl,
		Authorizer:        g.Authorization.Authorizer,
		RequestTimeout:    g.RequestTimeout,
		MinRequestTimeout: time.Duration(g.MinRequestTimeout) * time.Second,
		MaxRequestBody:    g.MaxRequestBodyBytes,
		OpenAPIV3:         g.OpenAPIV3Config,
	})
	if err != nil {
		return err
	}
	s.parts.mount(ctx, s.generic.Handler.NonGoRestfulMux, s.generic.Handler.Director)
	// The roles admin, edit and view are made of others; in a cluster of its own, the
	// controller manager puts them together.
	aggregation := clusterroleaggregation.NewClusterRoleAggregation(cp.VersionedInformers.Rbac().V1().ClusterRoles(), client.RbacV1())
	return s.generic.AddPostStartHook("kcp-start", func(hook genericapiserver.PostStartHookContext) error {
		go aggregation.Run(hook, 1)
		cp.VersionedInformers.Start(hook.Done())
		s.runCRDs(hook)
		go s.runParts(hook)
		return nil
	})
}

// runParts starts the controllers once the API answers, and then declares the server
// ready.
func (s *Server) runParts(ctx context.Context) {
	if err := s.parts.start(ctx, s.Loopback); err != nil {
		if ctx.Err() == nil {
			s.parts.fail(err)
		}
		return
	}
	close(s.ready)
}

// Run serves until ctx ends or something fails, then stops everything that New started.
func (s *Server) Run(ctx context.Context) error {
	defer s.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.parts.fail = func(err error) { cancel(err) }
	abandon := make(chan struct{})
	if s.etcd != nil {
		go func() {
			select {
			case err := <-s.etcd.Failed():
				klog.FromContext(ctx).Error(err, "The server ends, for it has lost its etcd")
				cancel(err)
				time.AfterFunc(abandonAfter, func() { close(abandon) })
			case <-ctx.Done():
			}
		}()
	}
	ended := make(chan error, 1)
	go func() {
		err := s.generic.PrepareRun().RunWithContext(ctx)
		s.parts.wait()
		ended <- err
	}()
	var err error
	select {
	case err = <-ended:
	case <-abandon:
		// What still waits is gone with the process.
	}
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// Ready is closed when the server answers and its controllers run.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Close stops what New started. Run calls it.
func (s *Server) Close() {
	for i := len(s.close) - 1; i >= 0; i-- {
		s.close[i]()
	}
	s.close = nil
}

func (s *Server) closeLater(f func()) { s.close = append(s.close, f) }

func (s *Server) preparePKI(o options.Completed) error {
	serving := o.ControlPlane.SecureServing
	var err error
	s.PKI, err = pki.Ensure(pki.Options{
		Dir:         filepath.Join(o.RootDirectory, "pki"),
		BindAddress: serving.BindAddress,
		Hosts:       []string{o.ExternalHostname},
	})
	if err != nil {
		return err
	}
	caPEM := s.PKI.CAPEM
	if serving.ServerCert.CertKey.CertFile == "" {
		serving.ServerCert.CertKey.CertFile = s.PKI.ServingCertFile
		serving.ServerCert.CertKey.KeyFile = s.PKI.ServingKeyFile
	} else if caPEM, err = os.ReadFile(serving.ServerCert.CertKey.CertFile); err != nil {
		return fmt.Errorf("--tls-cert-file: %w", err)
	}
	authn := o.ControlPlane.Authentication
	authn.ClientCert.ClientCA = s.PKI.ClientCAFile
	authn.ServiceAccounts.Issuers = []string{serviceAccountIssuer}
	authn.ServiceAccounts.KeyFiles = []string{s.PKI.ServiceAccountKeyFile}
	o.ControlPlane.ServiceAccountSigningKeyFile = s.PKI.ServiceAccountKeyFile
	return s.PKI.WriteKubeconfigs(o.RootDirectory, o.URL, caPEM)
}

func (s *Server) prepareEtcd(ctx context.Context, o options.Completed) error {
	if !o.EmbeddedEtcd {
		if err := etcd.Reachable(ctx, o.ControlPlane.Etcd.StorageConfig.Transport, etcdTimeout); err != nil {
			return fmt.Errorf("--etcd-servers: %w: check the addresses, --etcd-cafile, --etcd-certfile and --etcd-keyfile", err)
		}
		return nil
	}
	embedded, err := etcd.Start(ctx, filepath.Join(o.RootDirectory, "etcd"), filepath.Join(o.RootDirectory, "etcd.log"))
	if err != nil {
		return err
	}
	s.etcd = embedded
	s.closeLater(embedded.Close)
	o.ControlPlane.Etcd.StorageConfig.Transport.ServerList = []string{embedded.Endpoint}
	return nil
}

func newEtcdClient(o options.Completed) (*clientv3.Client, error) {
	return etcd.NewClient(o.ControlPlane.Etcd.StorageConfig.Transport)
}

// portFree gives a clear error before anything is started. The server itself binds later.
func portFree(ctx context.Context, address net.IP, port int) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address.String(), strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("cannot listen on --bind-address and --secure-port: %w: stop what uses the port, or choose another", err)
	}
	return l.Close()
}

// mux is where handlers beside the API are mounted.
type mux interface {
	Handle(path string, handler http.Handler)
	HandlePrefix(path string, handler http.Handler)
}
