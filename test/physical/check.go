package physical

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// tool is a program the fixture runs and the Debian package that has it.
type tool struct{ name, pkg string }

var tools = []tool{
	{"containerd", "containerd"},
	{"containerd-shim-runc-v2", "containerd"},
	{"ctr", "containerd"},
	{"ip", "iproute2"},
	{"nsenter", "util-linux"},
	{"unshare", "util-linux"},
	{"mount", "mount"},
}

// plugins are the CNI plugins that are used; loopback by containerd itself.
var plugins = []string{"bridge", "host-local", "loopback"}

// Check returns an error that names everything this machine lacks, with the
// command that installs it. binDir may be empty to leave out the binaries of this
// repository.
func Check(binDir string) error {
	missing, packages := []string{}, []string{}
	lack := func(what, pkg string) {
		missing = append(missing, what)
		if !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
	}
	for _, t := range tools {
		if _, err := exec.LookPath(t.name); err != nil {
			lack(t.name, t.pkg)
		}
	}
	_, runcErr := exec.LookPath("runc")
	_, crunErr := exec.LookPath("crun")
	if runcErr != nil && crunErr != nil {
		lack("runc or crun", "runc")
	}
	for _, p := range plugins {
		if _, err := os.Stat(filepath.Join(cniBinDir(), p)); err != nil {
			lack("CNI plugin "+p, "containernetworking-plugins")
		}
	}
	if _, err := readStatic(busybox); err != nil {
		lack("a static busybox", "busybox-static")
	}
	errs := []error{}
	if len(missing) > 0 {
		errs = append(errs, fmt.Errorf("not installed: %s; on Debian or Ubuntu:\n  apt-get install -y --no-install-recommends %s",
			strings.Join(missing, ", "), strings.Join(packages, " ")))
	}
	if os.Geteuid() != 0 {
		errs = append(errs, errors.New("root is needed, for namespaces, mounts and cgroups"))
	}
	if _, err := os.Stat(filepath.Join(cgroupFS, "cgroup.controllers")); err != nil {
		if _, err := os.Stat(filepath.Join(cgroupFS, "memory")); err != nil {
			errs = append(errs, fmt.Errorf("no cgroups are mounted at %s", cgroupFS))
		}
	}
	if binDir != "" {
		for _, name := range []string{"physical", "demoapp", "pause"} {
			if _, err := exec.LookPath(filepath.Join(binDir, name)); err != nil {
				errs = append(errs, fmt.Errorf("binary %q is not built: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}
