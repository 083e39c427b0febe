package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/13eedeaf/kcp/pkg/server/etcd"
)

// etcdDir, when set, makes the test binary run an etcd with its data there instead of
// tests, so that tests have one that they can pause and kill apart from the server.
const etcdDir = "E2E_ETCD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(etcdDir); dir != "" {
		if err := runEtcd(dir); err != nil {
			fmt.Fprintf(os.Stderr, "error: %v\n", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runEtcd(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	server, err := etcd.Start(ctx, filepath.Join(dir, "etcd"), filepath.Join(dir, "etcd-server.log"))
	if err != nil {
		return err
	}
	defer server.Close()
	fmt.Println(server.Endpoint)
	select {
	case <-ctx.Done():
		return nil
	case err := <-server.Failed():
		return err
	}
}

func etcdProcess(dir string) *process {
	return &process{name: "etcd", log: filepath.Join(dir, "etcd.log"), command: func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), etcdDir+"="+dir)
		return cmd
	}}
}

// etcdEndpoint waits until etcd has said where it listens.
func etcdEndpoint(t *testing.T, p *process) string {
	t.Helper()
	var endpoint string
	eventually(t, time.Minute, "etcd listens", func() (bool, string) {
		data, err := os.ReadFile(p.log)
		endpoint, _, _ = strings.Cut(string(data), "\n")
		return err == nil && strings.HasPrefix(endpoint, "unix://"), string(data)
	})
	return endpoint
}
