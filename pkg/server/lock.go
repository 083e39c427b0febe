package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockRoot makes the root directory and takes a lock on it, so that no second server
// uses the same data. The lock ends with the process, however it ends.
func lockRoot(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make --root-directory %q: %w", dir, err)
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot use --root-directory %q: %w", dir, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("--root-directory %q is in use by another kcp server: stop it, or give this one a directory of its own", dir)
		}
		return nil, fmt.Errorf("cannot lock %q: %w", path, err)
	}
	return f, nil
}
