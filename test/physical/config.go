package physical

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Names of the images every cluster has. The two versions of the application
// differ in what they say about themselves.
const (
	AppImageV1 = "demo.local/app:v1"
	AppImageV2 = "demo.local/app:v2"
	pauseImage = "demo.local/pause:1"
)

// cniBinDirs are where distributions put the plugins.
var cniBinDirs = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

// cniBinDir is the first directory with the plugins, or the first of all.
func cniBinDir() string {
	for _, dir := range cniBinDirs {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			return dir
		}
	}
	return cniBinDirs[0]
}

// containerdConfig works with containerd 1.6 and newer.
const containerdConfig = `version = 2
root = %[1]q
state = %[2]q
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
address = %[3]q

[plugins."io.containerd.internal.v1.opt"]
path = %[4]q

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %[5]q
# Lowering the score and loading profiles need rights a container may not have.
restrict_oom_score_adj = true
disable_apparmor = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = %[6]q
conf_dir = %[7]q

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = %[8]q
default_runtime_name = "oci"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.oci]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.oci.options]
BinaryName = %[9]q
SystemdCgroup = false
`

// snapshotter is native, which copies, where overlayfs cannot be stacked on the
// filesystem of the data.
func (c *Cluster) snapshotter() string {
	const overlayMagic = 0x794c7630
	st := unix.Statfs_t{}
	if err := unix.Statfs(c.path(), &st); err == nil && st.Type == overlayMagic {
		return "native"
	}
	return "overlayfs"
}

func (c *Cluster) containerdConfig() string {
	return fmt.Sprintf(containerdConfig,
		c.path("containerd"), c.path("containerd-run"), c.socket(), c.path("containerd-opt"),
		pauseImage, cniBinDir(), c.path("cni"), c.snapshotter(), c.fixture.opts.Runtime)
}

// cniConfig attaches the pods to a bridge of the cluster that is their gateway.
// The namespace forwards between the bridges, so that pods of different
// clusters reach each other, untranslated.
func (c *Cluster) cniConfig() map[string]any {
	return map[string]any{
		"cniVersion": "0.4.0",
		"name":       "pods",
		"plugins": []any{map[string]any{
			"type":        "bridge",
			"bridge":      c.bridge(),
			"isGateway":   true,
			"hairpinMode": true,
			"ipam": map[string]any{
				"type":    "host-local",
				"dataDir": c.path("cni-leases"),
				"ranges":  []any{[]any{map[string]any{"subnet": c.PodCIDR()}}},
				"routes":  []any{map[string]any{"dst": "0.0.0.0/0"}},
			},
		}},
	}
}

// kubeletConfig leaves resource management to the machine: cgroups are used for
// the limits of containers and nothing above them. That works with both versions
// of cgroups, and two kubelets on one machine do not clear up each other's pods.
func (c *Cluster) kubeletConfig() map[string]any {
	return map[string]any{
		"apiVersion":        "kubelet.config.k8s.io/v1beta1",
		"kind":              "KubeletConfiguration",
		"address":           c.Address(),
		"healthzPort":       0,
		"readOnlyPort":      0,
		"tlsCertFile":       filepath.Join(c.pkiDir(), "kubelet.crt"),
		"tlsPrivateKeyFile": filepath.Join(c.pkiDir(), "kubelet.key"),
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": filepath.Join(c.pkiDir(), "ca.crt")},
		},
		"authorization": map[string]any{"mode": "Webhook"},

		"containerRuntimeEndpoint":    "unix://" + c.socket(),
		"podLogsDir":                  c.path("pod-logs"),
		"volumePluginDir":             c.path("volume-plugins"),
		"serializeImagePulls":         false,
		"imageGCHighThresholdPercent": 100,
		"imageGCLowThresholdPercent":  99,

		// No name server runs, but pods get one configured, as a missing one is
		// reported as a warning on every pod.
		"clusterDomain": "cluster.local",
		"clusterDNS":    []string{c.serviceIP(10)},
		"resolvConf":    c.path("resolv.conf"),

		"failCgroupV1":                  false,
		"failSwapOn":                    false,
		"cgroupDriver":                  "cgroupfs",
		"cgroupsPerQOS":                 false,
		"enforceNodeAllocatable":        []string{},
		"oomScoreAdj":                   0,
		"localStorageCapacityIsolation": false,
		"makeIPTablesUtilChains":        false,
		// A full disk is the machine's problem and must not evict pods. An empty
		// map would mean the defaults.
		"evictionHard": map[string]string{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%",
		},
	}
}

// writeConfigs writes the configuration files of all components, so that a
// repeated start has the current ones.
func (c *Cluster) writeConfigs() error {
	for _, dir := range []string{"cni", "pod-logs", "volume-plugins", "kubelet"} {
		if err := os.MkdirAll(c.path(dir), 0o755); err != nil {
			return fmt.Errorf("cannot make directory %q: %w", c.path(dir), err)
		}
	}
	files := map[string]any{
		"containerd.toml":   c.containerdConfig(),
		"cni/pods.conflist": c.cniConfig(),
		"kubelet.json":      c.kubeletConfig(),
		"resolv.conf":       strings.Join([]string{"nameserver " + c.serviceIP(10), "options timeout:1 attempts:1", ""}, "\n"),
	}
	for name, content := range files {
		text, ok := content.(string)
		if !ok {
			data, err := json.MarshalIndent(content, "", "  ")
			if err != nil {
				return fmt.Errorf("cannot encode %q: %w", name, err)
			}
			text = string(data) + "\n"
		}
		if err := os.WriteFile(c.path(name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("cannot write configuration: %w", err)
		}
	}
	return nil
}
