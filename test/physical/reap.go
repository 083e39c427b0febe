package physical

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const cgroupFS = "/sys/fs/cgroup"

// territory is what makes a process one of a cluster's: components and shims are
// in its mount namespace, containers in its cgroup.
type territory struct {
	// mountNS and netNS identify namespaces as the links in /proc/PID/ns do. A
	// process has to be in both, because the kernel reuses their numbers; if
	// either is empty no process is.
	mountNS, netNS string
	// cgroup is a path from the root of the hierarchies.
	cgroup string
}

// pids returns the live processes in the territory.
func (t territory) pids() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("cannot list processes: %w", err)
	}
	pids := []int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// Processes come and go, and one that cannot be read has gone.
		if state, _, err := procStat(pid); err != nil || state == "Z" || state == "X" {
			continue
		}
		if t.hasNamespaces(pid) || t.hasCgroup(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func (t territory) hasNamespaces(pid int) bool {
	if t.mountNS == "" || t.netNS == "" {
		return false
	}
	ns := filepath.Join("/proc", strconv.Itoa(pid), "ns")
	mnt, err := os.Readlink(filepath.Join(ns, "mnt"))
	if err != nil || mnt != t.mountNS {
		return false
	}
	net, err := os.Readlink(filepath.Join(ns, "net"))
	return err == nil && net == t.netNS
}

func (t territory) hasCgroup(pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	return err == nil && inCgroup(string(data), t.cgroup)
}

// inCgroup says whether any line of a /proc/PID/cgroup file is at or below a
// path.
func inCgroup(file, path string) bool {
	for line := range strings.Lines(file) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && (parts[2] == path || strings.HasPrefix(parts[2], path+"/")) {
			return true
		}
	}
	return false
}

// clear kills every process in the territory, until there is none, and removes
// its cgroups.
func (t territory) clear(ctx context.Context, timeout time.Duration) error {
	var left []int
	var failed error
	err := waitUntil(ctx, timeout, func() bool {
		left, failed = t.pids()
		for _, pid := range left {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				failed = errors.Join(failed, fmt.Errorf("cannot kill process %d: %w", pid, err))
			}
		}
		return failed == nil && len(left) == 0
	})
	if err != nil {
		return fmt.Errorf("processes %v do not end: %w", left, errors.Join(failed, err))
	}
	// The kernel may need a moment to empty the cgroup of a process that has
	// ended.
	err = waitUntil(ctx, timeout, func() bool {
		failed = removeCgroups(cgroupFS, t.cgroup)
		return failed == nil
	})
	if err != nil {
		return fmt.Errorf("cannot remove cgroup %q: %w", t.cgroup, failed)
	}
	return nil
}

// removeCgroups removes a path and everything below it from every hierarchy:
// the unified one may be at root, the others are one level down.
func removeCgroups(root, path string) error {
	tops := []string{filepath.Join(root, path)}
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("cannot list cgroup hierarchies: %w", err)
	}
	for _, e := range entries {
		tops = append(tops, filepath.Join(root, e.Name(), path))
	}
	for _, top := range tops {
		dirs := []string{}
		err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, p)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return err
		}
		slices.Reverse(dirs)
		for _, d := range dirs {
			if err := syscall.Rmdir(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("cannot remove %q: %w", d, err)
			}
		}
	}
	return nil
}

// isHybrid says whether both versions of cgroups are mounted, the second one
// beside the hierarchies of the first.
func isHybrid(root string) bool {
	_, err := os.Stat(filepath.Join(root, "unified", "cgroup.procs"))
	return err == nil
}
