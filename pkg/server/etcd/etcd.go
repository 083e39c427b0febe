// Package etcd runs the embedded etcd of a single-machine server and makes clients for
// it or for an external one.
package etcd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// maxSocketPath is below Linux's limit of 107 bytes for the path of a unix socket.
const maxSocketPath = 100

// startTimeout bounds the wait for a leader. A single member elects itself within a few
// heartbeats, after it has replayed its log.
const startTimeout = time.Minute

// closeTimeout bounds the wait for an etcd to stop that has failed: what it waits for
// itself may be what failed.
const closeTimeout = 5 * time.Second

// Server is a running embedded etcd. It listens on unix sockets that only the user who
// started it can open.
type Server struct {
	etcd *embed.Etcd
	// Endpoint is what clients dial, e.g. unix:///run/kcp/client.sock.
	Endpoint  string
	socketDir string
	failures  *failures
	failed    chan error
}

// Start runs etcd with its data in dir and waits until it serves. Logs go to logFile.
// A data directory that cannot be read is an error that names it.
func Start(ctx context.Context, dir, logFile string) (*Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the etcd directory: %w", err)
	}
	socketDir, err := socketDir(dir)
	if err != nil {
		return nil, err
	}
	client := url.URL{Scheme: "unix", Path: filepath.Join(socketDir, "client.sock")}
	peer := url.URL{Scheme: "unix", Path: filepath.Join(socketDir, "peer.sock")}
	// Sockets left by a killed server would make the listeners fail.
	for _, u := range []url.URL{client, peer} {
		if err := os.Remove(u.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("cannot remove a stale etcd socket: %w", err)
		}
	}
	failures := newFailures()
	logger, err := newLogger(logFile, failures)
	if err != nil {
		return nil, fmt.Errorf("cannot write etcd's log: %w", err)
	}

	cfg := embed.NewConfig()
	cfg.Name = "kcp"
	cfg.Dir = dir
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	cfg.QuotaBackendBytes = 8 << 30
	// The last entries of the log are kept in memory for members that lag behind. There
	// are none.
	cfg.SnapshotCatchUpEntries = 100
	// The watch caches ask for progress to serve consistent lists; the default of ten
	// minutes is for idle watches only.
	cfg.WatchProgressNotifyInterval = 5 * time.Second

	etcd, err := failures.start(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot start the embedded etcd on %q (log: %s): %w: if the directory is damaged, restore it from a backup", dir, logFile, err)
	}
	s := &Server{etcd: etcd, Endpoint: client.String(), socketDir: socketDir, failures: failures, failed: make(chan error, 1)}
	select {
	case <-etcd.Server.ReadyNotify():
		go s.watch(dir, logFile)
		return s, nil
	case err = <-etcd.Err():
	case <-failures.happened:
		err = failures.error()
	case <-time.After(startTimeout):
		err = fmt.Errorf("not ready within %s", startTimeout)
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.Close()
	return nil, fmt.Errorf("the embedded etcd on %q did not become ready (log: %s): %w", dir, logFile, err)
}

// watch tells Failed why etcd failed. It ends with etcd.
func (s *Server) watch(dir, logFile string) {
	var err error
	select {
	case err = <-s.etcd.Err():
	case <-s.failures.happened:
		err = s.failures.error()
	case <-s.etcd.Server.StopNotify():
		return
	}
	err = fmt.Errorf("the embedded etcd on %q failed (log: %s): %w", dir, logFile, err)
	if errors.Is(err, syscall.ENOSPC) {
		err = fmt.Errorf("%w: make room on its disk and start the server again; nothing that was acknowledged is lost", err)
	}
	s.failed <- err
}

// Failed delivers the error of an etcd that fails while it runs. Nothing that is stored in
// it can be read or written any more.
func (s *Server) Failed() <-chan error { return s.failed }

// Close stops etcd after what it has acknowledged is on disk.
func (s *Server) Close() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.etcd.Close()
	}()
	select {
	case <-closed:
	case <-s.failures.happened:
		select {
		case <-closed:
		case <-time.After(closeTimeout):
		}
	}
	_ = os.RemoveAll(s.socketDir)
}

// socketDir is below dir, or, where that would be too long for a socket's path, a
// private directory in the system's temporary one.
func socketDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	sockets := filepath.Join(abs, "sockets")
	if len(filepath.Join(sockets, "client.sock")) > maxSocketPath {
		sum := sha256.Sum256([]byte(abs))
		sockets = filepath.Join(os.TempDir(), "kcp-etcd-"+hex.EncodeToString(sum[:8]))
	}
	if err := os.MkdirAll(sockets, 0o700); err != nil {
		return "", fmt.Errorf("cannot make the directory of etcd's sockets: %w", err)
	}
	info, err := os.Lstat(sockets)
	if err != nil {
		return "", err
	}
	// Someone else could have made the temporary directory first, and would then sit between
	// the server and its data.
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || info.Mode().Perm()&0o077 != 0 || int(stat.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%q is not a private directory (want mode 0700, owned by the user who runs the server)", sockets)
	}
	return sockets, nil
}

// NewClient returns a client for the servers that the storage layer uses.
func NewClient(t storagebackend.TransportConfig) (*clientv3.Client, error) {
	cfg := clientv3.Config{Endpoints: t.ServerList, DialTimeout: 20 * time.Second}
	if t.CertFile != "" || t.TrustedCAFile != "" {
		tlsConfig, err := transport.TLSInfo{
			CertFile:      t.CertFile,
			KeyFile:       t.KeyFile,
			TrustedCAFile: t.TrustedCAFile,
		}.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("cannot use the etcd TLS files: %w", err)
		}
		cfg.TLS = tlsConfig
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for etcd %q: %w", t.ServerList, err)
	}
	return client, nil
}

// Reachable returns an error unless one of the servers answers within the timeout.
func Reachable(ctx context.Context, t storagebackend.TransportConfig, timeout time.Duration) error {
	client, err := NewClient(t)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// A read that needs a leader; the key need not exist.
	if _, err := client.Get(ctx, "/"); err != nil {
		return fmt.Errorf("etcd at %q does not answer: %w", t.ServerList, err)
	}
	return nil
}
