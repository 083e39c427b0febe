package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// newKCP prepares a server of the product with a fresh root directory; run starts it.
func (e *Env) newKCP(name string, flags ...string) (*apiServer, error) {
	dir, err := e.dir(name)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	root := filepath.Join(dir, "root")
	s := &apiServer{
		name:            "kcp",
		dir:             dir,
		url:             fmt.Sprintf("https://127.0.0.1:%d", port),
		adminKubeconfig: filepath.Join(dir, "base.kubeconfig"),
		namespace: func(i int, other string) (path, name string) {
			return workspacePath(i) + "/api/v1/namespaces", cmp.Or(other, "default")
		},
	}
	argv := append([]string{e.bin("kcp"), "start", "--root-directory", root, "--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(port)}, flags...)
	s.launch = func(ctx context.Context) (*process, func(context.Context) error, error) {
		p, err := start(ctx, dir, name, "kcp is ready", argv)
		return p, func(ctx context.Context) error {
			select {
			case <-p.seen:
			case <-p.done:
				return fmt.Errorf("%s did not start", name)
			case <-ctx.Done():
				return ctx.Err()
			}
			if s.admin != nil {
				return nil
			}
			return s.connect(filepath.Join(root, "pki"), "unix://"+filepath.Join(root, "etcd", "sockets", "client.sock"))
		}, err
	}
	s.heap = func(ctx context.Context) (float64, error) {
		// Twice: what finalizers hold goes with the second collection.
		if _, err := s.admin.raw(ctx, "GET", "/debug/pprof/heap?gc=1&debug=1", "", nil); err != nil {
			return 0, err
		}
		data, err := s.admin.raw(ctx, "GET", "/debug/pprof/heap?gc=1&debug=1", "", nil)
		if err != nil {
			return 0, err
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		for lines.Scan() {
			if rest, ok := strings.CutPrefix(lines.Text(), "# HeapAlloc = "); ok {
				return strconv.ParseFloat(rest, 64)
			}
		}
		return 0, fmt.Errorf("the heap profile of %s does not tell its size", name)
	}
	return s, nil
}

// startKCP starts a fresh server with the workspace of all tenants, in which the tenant
// may do anything.
func (e *Env) startKCP(ctx context.Context, name string, flags ...string) (*apiServer, error) {
	s, err := e.newKCP(name, flags...)
	if err != nil {
		return nil, err
	}
	if _, err := s.run(ctx); err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.adminKubeconfig, kubeconfig(s.url, filepath.Join(s.dir, "root", "pki")), 0o600); err != nil {
		return nil, err
	}
	if err := s.admin.create(ctx, rbacPath("/clusters/root"), adminBinding()); err != nil {
		return nil, err
	}
	return s, s.createWorkspace(ctx, "root", tenantsParent)
}

// tenantsParent is the workspace below root that holds those of tenants.
const tenantsParent = "bench"

func workspaceName(i int) string { return "t" + strconv.Itoa(i) }

func workspacePath(i int) string { return "/clusters/root:" + tenantsParent + ":" + workspaceName(i) }

func workspacesPath(parent string) string {
	return "/clusters/" + parent + "/apis/tenancy.kcp.io/v1alpha1/workspaces"
}

func workspace(name string) manifest {
	return manifest{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": named(name),
		"spec": manifest{"type": manifest{"name": "universal"}},
	}
}

// createWorkspace creates one as the tenant and waits until it is ready.
func (s *apiServer) createWorkspace(ctx context.Context, parent, name string) error {
	if err := s.tenant.create(ctx, workspacesPath(parent), workspace(name)); err != nil {
		return err
	}
	return eventually(ctx, "workspace "+name+" is ready", pollInterval, func(ctx context.Context) (bool, error) {
		var ws object
		err := s.tenant.get(ctx, workspacesPath(parent)+"/"+name, &ws)
		return ws.Status.Phase == "Ready", err
	})
}

func rbacPath(prefix string) string {
	return prefix + "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
}

// adminBinding lets the tenant do anything where it is created.
func adminBinding() manifest {
	return manifest{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": named("bench"),
		"subjects": []manifest{{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": tenantUser}},
		"roleRef":  manifest{"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "cluster-admin"},
	}
}
