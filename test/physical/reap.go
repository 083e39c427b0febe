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
// in its mount namespace, and containers in cgroups named after them.
type territory struct {
	// mountNS and netNS identify namespaces as the links in /proc/PID/ns do. A
	// process has to be in both, because the kernel reuses their numbers; if
	// either is empty no process is.
	mountNS, netNS string
	// tasks is the directory in which containerd has one named after each
	// container it has started.
	tasks string
}

// pids returns the live processes in the territory.
func (t territory) pids() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("cannot list processes: %w", err)
	}
	containers := t.containers()
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
		if t.hasNamespaces(pid) || isContainer(pid, containers) {
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

// containers returns the ids of the containers, which are unique, from a
// directory, because containerd may not be running.
func (t territory) containers() []string {
	entries, err := os.ReadDir(t.tasks)
	if err != nil {
		return nil // None was ever started.
	}
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids
}

func isContainer(pid int, containers []string) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	return err == nil && inCgroupOf(string(data), containers)
}

// inCgroupOf says whether a /proc/PID/cgroup file names the cgroup of a
// container, or one below it.
func inCgroupOf(file string, containers []string) bool {
	for line := range strings.Lines(file) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		const path = 2 // see cgroups(7)
		if len(fields) <= path {
			continue
		}
		for dir := range strings.SplitSeq(fields[path], "/") {
			if slices.Contains(containers, dir) {
				return true
			}
		}
	}
	return false
}

// clear kills every process in the territory until there is none.
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
	return nil
}

// containerCgroup is the parent of the cgroups of all containers of Kubernetes
// that are not told otherwise. Another containerd may use it, too.
const containerCgroup = "k8s.io"

// removeCgroups removes what containers leave behind when they are killed
// together with their runtime.
func removeCgroups(root string, containers []string) error {
	if len(containers) == 0 {
		return nil
	}
	// With version 2 there is one hierarchy, else they are one level down.
	parents := []string{filepath.Join(root, containerCgroup)}
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("cannot list cgroup hierarchies: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			parents = append(parents, filepath.Join(root, e.Name(), containerCgroup))
		}
	}
	for _, parent := range parents {
		for _, id := range containers {
			if err := removeTree(filepath.Join(parent, id)); err != nil {
				return err
			}
		}
		// Fails, as it should, if somebody else's are in there.
		_ = syscall.Rmdir(parent)
	}
	return nil
}

// removeTree removes a directory that may contain directories, and files that
// cannot be removed, as cgroups do.
func removeTree(top string) error {
	dirs := []string{}
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, p)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot list cgroups: %w", err)
	}
	for _, d := range slices.Backward(dirs) {
		if err := syscall.Rmdir(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove cgroup %q: %w", d, err)
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
