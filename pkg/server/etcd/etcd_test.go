package etcd

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// filled returns the directory of an etcd that has held something and was stopped.
func filled(t *testing.T) string {
	t.Helper()
	// The path of a unix socket is limited.
	root, err := os.MkdirTemp("", "etcd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	dir := filepath.Join(root, "etcd")
	s := start(t, dir)
	put(t, s, "key", "value")
	s.Close()
	return dir
}

func start(t *testing.T, dir string) *Server {
	t.Helper()
	s, err := Start(t.Context(), dir, filepath.Join(filepath.Dir(dir), "etcd.log"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func client(t *testing.T, s *Server) *clientv3.Client {
	t.Helper()
	c, err := NewClient(storagebackend.TransportConfig{ServerList: []string{s.Endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func put(t *testing.T, s *Server, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := client(t, s).Put(ctx, key, value); err != nil {
		t.Fatal(err)
	}
}

func TestDataSurvivesARestart(t *testing.T) {
	s := start(t, filled(t))
	defer s.Close()
	got, err := client(t, s).Get(t.Context(), "key")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "value" {
		t.Errorf("after a restart: %v, %v", got, err)
	}
}

// TestCorruptDirectory: what etcd makes of it (an error, a panic, the end of the
// process) becomes one error that names the directory and the log.
func TestCorruptDirectory(t *testing.T) {
	garbage := []byte(strings.Repeat("garbage ", 4096))
	overwrite := func(pattern string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			files, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil || len(files) == 0 {
				t.Fatalf("no file %q: %v", pattern, err)
			}
			for _, file := range files {
				if err := os.WriteFile(file, garbage, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for name, corrupt := range map[string]func(t *testing.T, dir string){
		"database": overwrite("member/snap/db"),
		"log":      overwrite("member/wal/*.wal"),
		"database and log": func(t *testing.T, dir string) {
			overwrite("member/snap/db")(t, dir)
			overwrite("member/wal/*.wal")(t, dir)
		},
		"empty database": func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, "member/snap/db"), 4096); err != nil {
				t.Fatal(err)
			}
		},
		"a file in place of the directory": func(t *testing.T, dir string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(dir, garbage, 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filled(t)
			corrupt(t, dir)
			log := filepath.Join(filepath.Dir(dir), "etcd.log")
			s, err := Start(t.Context(), dir, log)
			if err == nil {
				s.Close()
				t.Fatal("etcd started")
			}
			if !strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line that names %q", err, dir)
			}
		})
	}
}
