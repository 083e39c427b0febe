package physical

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Options describe a fixture. Dir and BinDir are required.
type Options struct {
	// Dir holds the state of the fixture. It is made if need be.
	Dir string
	// BinDir has the binaries physical, demoapp and pause.
	BinDir string
	// Netns is the name of the network namespace; default
	// DefaultNetns. Two fixtures on one machine need different ones.
	Netns string
	// Clusters are the names of the clusters; default DefaultClusters. The
	// position in the list determines the addresses.
	Clusters []string
	// Runtime is the OCI runtime, "runc" or "crun"; default is the first of them
	// that is installed.
	Runtime string
	// Timeout limits how long each cluster may take to get ready; default two
	// minutes.
	Timeout time.Duration
	// Log receives one line per step; default os.Stderr.
	Log io.Writer
}

// DefaultNetns is the name of the network namespace unless Options say
// otherwise.
const DefaultNetns = "kcp-physical"

// DefaultClusters returns the names of the clusters unless Options say
// otherwise.
func DefaultClusters() []string { return []string{"us-east1", "us-west1"} }

// maxClusters is bounded by the address plan (see Cluster).
const maxClusters = 50

// maxSocketPath is what fits in sockaddr_un.
const maxSocketPath = 107

var (
	clusterName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?$`)
	netnsName   = regexp.MustCompile(`^[a-zA-Z0-9][-_a-zA-Z0-9]{0,62}$`)
)

// complete returns o with defaults filled in and checked.
func (o Options) complete() (Options, error) {
	if o.Dir == "" || o.BinDir == "" {
		return o, errors.New("both the directory of the fixture and the directory of its binaries are required")
	}
	for _, p := range []*string{&o.Dir, &o.BinDir} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return o, fmt.Errorf("cannot make %q absolute: %w", *p, err)
		}
		*p = abs
	}
	if o.Netns == "" {
		o.Netns = DefaultNetns
	}
	if len(o.Clusters) == 0 {
		o.Clusters = DefaultClusters()
	}
	if o.Runtime == "" {
		o.Runtime = defaultRuntime()
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Minute
	}
	if o.Log == nil {
		o.Log = os.Stderr
	}
	return o, o.validate()
}

func (o Options) validate() error {
	if !netnsName.MatchString(o.Netns) {
		return fmt.Errorf("%q is not a name for a network namespace: want letters, digits, - and _", o.Netns)
	}
	if o.Runtime != "runc" && o.Runtime != "crun" {
		return fmt.Errorf("unknown OCI runtime %q: want runc or crun", o.Runtime)
	}
	if len(o.Clusters) > maxClusters {
		return fmt.Errorf("%d clusters are too many, the address plan has room for %d", len(o.Clusters), maxClusters)
	}
	// It becomes part of mount options and configuration files.
	if strings.ContainsAny(o.Dir, " \t\n\\\":,") {
		return fmt.Errorf("directory %q has characters that do not work in mount options", o.Dir)
	}
	seen := map[string]bool{}
	for _, name := range o.Clusters {
		if !clusterName.MatchString(name) {
			return fmt.Errorf("%q is not a name for a cluster: want lower-case letters, digits and -", name)
		}
		if seen[name] {
			return fmt.Errorf("cluster %q is listed twice", name)
		}
		seen[name] = true
		// containerd puts a second socket beside its own.
		if sock := filepath.Join(o.Dir, name, "containerd.sock.ttrpc"); len(sock) > maxSocketPath {
			return fmt.Errorf("directory %q is too long for a socket below it: %q has %d characters, at most %d work", o.Dir, sock, len(sock), maxSocketPath)
		}
	}
	return nil
}

func defaultRuntime() string {
	if _, err := exec.LookPath("runc"); err != nil {
		if _, err := exec.LookPath("crun"); err == nil {
			return "crun"
		}
	}
	return "runc"
}
