// Package framework runs the real server, with its real embedded etcd, inside a test
// process.
package framework

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/server"
	"github.com/13eedeaf/kcp/pkg/server/options"
	"github.com/13eedeaf/kcp/pkg/server/pki"
)

// startTimeout is far above what a start takes; it only keeps a broken server from
// holding up the run.
const startTimeout = 2 * time.Minute

// Server is a running server.
type Server struct {
	// URL is the base URL, without a path.
	URL string
	// Root is the root directory.
	Root string
	// Loopback is the configuration of the server's own client.
	Loopback *rest.Config

	options *options.Options
	stop    func()
}

// Option changes the flags that the server is started with.
type Option func(*options.Options)

// Start runs a server in a directory of its own and waits until it is ready. It stops
// with the test.
func Start(t *testing.T, opts ...Option) *Server {
	t.Helper()
	o := options.New()
	o.RootDirectory = tempDir(t)
	o.ControlPlane.SecureServing.BindPort = freePort(t)
	for _, f := range opts {
		f(o)
	}
	s := &Server{options: o, Root: o.RootDirectory}
	s.run(t)
	t.Cleanup(func() { s.stop() })
	return s
}

// Restart stops the server and starts it again on the same data and port.
func (s *Server) Restart(t *testing.T) {
	t.Helper()
	s.stop()
	// Upstream fills options in while it starts, so they are made anew.
	fresh := options.New()
	fresh.RootDirectory = s.Root
	fresh.EmbeddedIdentityProvider = s.options.EmbeddedIdentityProvider
	fresh.AuthenticationConfig = s.options.AuthenticationConfig
	fresh.Clock = s.options.Clock
	fresh.ControlPlane.SecureServing.BindPort = s.options.ControlPlane.SecureServing.BindPort
	s.options = fresh
	s.run(t)
}

func (s *Server) run(t *testing.T) {
	t.Helper()
	completed, err := s.options.Complete()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(completed.Validate()...); err != nil {
		t.Fatal(err)
	}
	// The server outlives t.Context(), which ends before clean-up functions run.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	srv, err := server.New(ctx, completed)
	if err != nil {
		cancel()
		t.Fatalf("cannot assemble the server: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	s.URL, s.Loopback = srv.URL, srv.Loopback
	s.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ended with an error: %v", err)
		}
		s.stop = func() {}
	}
	select {
	case <-srv.Ready():
	case err := <-done:
		s.stop = func() {}
		cancel()
		t.Fatalf("the server ended before it was ready: %v", err)
	case <-time.After(startTimeout):
		s.stop()
		t.Fatalf("the server was not ready after %s", startTimeout)
	}
}

// AdminConfig returns the administrator's client configuration for a cluster, given by
// id or path.
func (s *Server) AdminConfig(t *testing.T, cluster logicalcluster.Path) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.Root, pki.AdminKubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Host = s.URL + cluster.RequestPath()
	cfg.QPS = -1
	return cfg
}

// Admin returns the administrator's client for a cluster.
func (s *Server) Admin(t *testing.T, cluster logicalcluster.Path) kubernetes.Interface {
	t.Helper()
	return kubernetes.NewForConfigOrDie(s.AdminConfig(t, cluster))
}

// Clients returns clients of the server's own identity, by cluster.
func (s *Server) Clients(t *testing.T) *clients.Clients {
	t.Helper()
	c, err := clients.New(s.Loopback)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Eventually polls f until it returns true. f's last message is shown when it does not
// within a generous time.
func Eventually(t *testing.T, what string, f func(ctx context.Context) (bool, string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var last string
	for {
		ok, message := f(ctx)
		if ok {
			return
		}
		last = message
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within a minute; last: %s", what, last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tempDir is t.TempDir with a short name: the path of a unix socket is limited.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kcp-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}
