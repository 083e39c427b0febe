package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/13eedeaf/kcp/pkg/server/pki"
)

// Names of files that the testbed's control plane reads. Its package is not imported: it
// would link all of Kubernetes into the benchmark.
const (
	stockCA            = "ca.crt"
	stockServingCert   = "apiserver.crt"
	stockServingKey    = "apiserver.key"
	stockServiceTokens = "sa.key"
)

// pollInterval is how often what has no watch is looked at.
const pollInterval = 20 * time.Millisecond

// newStock prepares a stock control plane with fresh data: kube-apiserver, its etcd,
// controllers and scheduler in one process. A tenant is a namespace.
func (e *Env) newStock(name string) (*apiServer, error) {
	dir, err := e.dir(name)
	if err != nil {
		return nil, err
	}
	ports := [2]int{}
	for i := range ports {
		if ports[i], err = freePort(); err != nil {
			return nil, err
		}
	}
	keys := filepath.Join(dir, "pki")
	if err := stockPKI(keys); err != nil {
		return nil, err
	}
	s := &apiServer{
		name:            "kube-apiserver",
		dir:             dir,
		url:             fmt.Sprintf("https://127.0.0.1:%d", ports[0]),
		adminKubeconfig: filepath.Join(dir, "kubeconfig"),
		namespace: func(i int, other string) (path, name string) {
			return "/api/v1/namespaces", strings.TrimSuffix(workspaceName(i)+"-"+other, "-")
		},
	}
	if err := os.WriteFile(s.adminKubeconfig, kubeconfig(s.url, keys), 0o600); err != nil {
		return nil, err
	}
	if err := s.connect(keys, fmt.Sprintf("http://127.0.0.1:%d", ports[1])); err != nil {
		return nil, err
	}
	services, err := freeServiceRange()
	if err != nil {
		return nil, err
	}
	argv := []string{
		e.bin("physical"), "controlplane", "--etcd-fsync",
		"--data-dir", filepath.Join(dir, "data"), "--pki-dir", keys, "--kubeconfig", s.adminKubeconfig,
		"--address", "127.0.0.1", "--port", strconv.Itoa(ports[0]), "--etcd-port", strconv.Itoa(ports[1]),
		"--service-cidr", services,
	}
	s.launch = func(ctx context.Context) (*process, func(context.Context) error, error) {
		p, err := start(ctx, dir, name, "", argv)
		return p, func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() {
				<-p.done
				cancel()
			}()
			return eventually(ctx, name+" is ready", pollInterval, func(ctx context.Context) (bool, error) {
				_, err := s.admin.raw(ctx, http.MethodGet, "/readyz", "", nil)
				return err == nil, err
			})
		}, err
	}
	return s, nil
}

// freeServiceRange returns a range of loopback addresses of which nobody uses the first,
// where the control plane serves itself to pods.
func freeServiceRange() (string, error) {
	for n := 100; n < 250; n++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.%d.0.1:443", n))
		if err != nil {
			continue
		}
		return fmt.Sprintf("127.%d.0.0/16", n), l.Close()
	}
	return "", errors.New("cannot listen on port 443 of any loopback address: root is needed")
}

// startStock starts one in which the tenant may do anything.
func (e *Env) startStock(ctx context.Context, name string) (*apiServer, error) {
	s, err := e.newStock(name)
	if err != nil {
		return nil, err
	}
	if _, err := s.run(ctx); err != nil {
		return nil, err
	}
	return s, s.admin.create(ctx, rbacPath(""), adminBinding())
}

// stockPKI makes the keys of a stock control plane with the product's own code, under
// the names that the testbed uses. One authority is enough for clients: the server's
// own certificate is not checked by it.
func stockPKI(dir string) error {
	p, err := pki.Ensure(pki.Options{Dir: dir, BindAddress: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	both, err := os.ReadFile(p.ClientCAFile)
	if err != nil {
		return err
	}
	// The control plane has one file of authorities, for both directions.
	if err := os.WriteFile(filepath.Join(dir, stockCA), append(both, p.CAPEM...), 0o600); err != nil {
		return err
	}
	for from, to := range map[string]string{
		p.ServingCertFile:       stockServingCert,
		p.ServingKeyFile:        stockServingKey,
		p.ServiceAccountKeyFile: stockServiceTokens,
	} {
		if err := os.Symlink(from, filepath.Join(dir, to)); err != nil {
			return err
		}
	}
	return nil
}

// kubeconfig is an administrator's, for a server without a path.
func kubeconfig(url, pkiDir string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: bench
contexts: [{name: bench, context: {cluster: bench, user: admin}}]
clusters: [{name: bench, cluster: {server: %[1]q, certificate-authority: %[2]q}}]
users: [{name: admin, user: {client-certificate: %[3]q, client-key: %[4]q}}]
`, url, filepath.Join(pkiDir, "ca.crt"), filepath.Join(pkiDir, "admin.crt"), filepath.Join(pkiDir, "admin.key"))
}
