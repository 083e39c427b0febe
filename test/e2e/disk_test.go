package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// diskSize is enough for a server to start on: etcd reserves two log segments of
	// 64 MiB each.
	diskSize = 256 << 20
	// bite is how much each write takes of it.
	bite = 512 << 10
)

// TestFullDisk lets a server's disk run full. It says so, loses nothing of what it has
// acknowledged, and works again once there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	bin := os.Getenv("KCP_BIN")
	if bin == "" {
		t.Skip("KCP_BIN is not set: run make test-e2e")
	}
	dir, err := os.MkdirTemp("", "kcp-disk-")
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", diskSize)); err != nil {
		t.Fatalf("cannot mount a small disk: %v", err)
	}
	server := &process{name: "server", log: filepath.Join(dir, "server.log")}
	port := freePort(t)
	server.command = func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, filepath.Join(bin, "kcp"), "start", "--root-directory", root, "--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(port))
	}
	t.Cleanup(func() {
		server.kill()
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(server.tail())
			return
		}
		_ = os.RemoveAll(dir)
	})
	server.start(t)
	kube := adminOf(t, server, root)

	ballast := filepath.Join(root, "ballast")
	fill(t, ballast, root, 8<<20)
	written, refused := writeUntilRefused(t, kube)
	t.Logf("%d writes were acknowledged, then: %v", written, refused)
	// It does not wait for what waits for etcd.
	eventually(t, 40*time.Second, "the server ends", func() (bool, string) { return server.hasEnded(), "it runs" })
	said := server.tail()
	last := said[strings.LastIndex(said, "\n")+1:]
	for _, want := range []string{"error: ", "no space left on device", "make room on its disk and start the server again"} {
		if !strings.Contains(last, want) {
			t.Errorf("the server's last words are %q, want %q in them", last, want)
		}
	}
	// There is room again.
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	server.start(t)
	eventually(t, 2*time.Minute, "writes are taken again", func() (bool, string) {
		err := writeBite(t.Context(), kube, written+1)
		return err == nil || apierrors.IsAlreadyExists(err), fmt.Sprint(err)
	})
	found, err := kube.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, c := range found.Items {
		have[c.Name] = len(c.Data["bite"]) == bite
	}
	for n := range written {
		if !have[biteName(n)] {
			t.Errorf("%s was acknowledged and is lost", biteName(n))
		}
	}
}

// adminOf waits until a server that runs outside of the testbed is ready, and returns
// the administrator's client for the root workspace.
func adminOf(t *testing.T, server *process, root string) kubernetes.Interface {
	t.Helper()
	var kube kubernetes.Interface
	eventually(t, time.Minute, "the server is ready", func() (bool, string) {
		cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(root, "admin.kubeconfig"))
		if err != nil {
			return false, err.Error()
		}
		cfg.Timeout = 10 * time.Second
		if kube, err = kubernetes.NewForConfig(cfg); err != nil {
			return false, err.Error()
		}
		_, err = kube.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceDefault, metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return kube
}

// fill takes all of a disk but a rest.
func fill(t *testing.T, file, disk string, rest int64) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(disk, &st); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-rest); err != nil {
		t.Fatal(err)
	}
}

func biteName(n int) string { return fmt.Sprintf("bite-%d", n) }

func writeBite(ctx context.Context, kube kubernetes.Interface, n int) error {
	_, err := kube.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: biteName(n)}, Data: map[string]string{"bite": strings.Repeat("x", bite)},
	}, metav1.CreateOptions{})
	return err
}

// writeUntilRefused returns how many writes the server has acknowledged, and why it did
// not take the next one.
func writeUntilRefused(t *testing.T, kube kubernetes.Interface) (written int, refused error) {
	t.Helper()
	for written = range diskSize / bite {
		if err := writeBite(t.Context(), kube, written); err != nil {
			return written, err
		}
	}
	t.Fatal("the disk does not run full")
	return written, errors.New("unreachable")
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
