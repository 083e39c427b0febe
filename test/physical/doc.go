// Package physical brings up real Kubernetes clusters on one machine, as the
// fixture of end-to-end tests and of the demo, and takes them down again
// without a trace.
//
// # What is real
//
// Each cluster is an unmodified control plane (package controlplane), a
// containerd and a kubelet that runs pods as containers, with real networks,
// probes, volumes and graceful termination. Left out are kube-proxy and a DNS
// server: of the cluster IPs only the API server's works, and service names do
// not; pod addresses, also between clusters, do.
//
// # Isolation
//
// All clusters share one network namespace, with node addresses on its loopback
// device, one bridge for the pods of each cluster, and no way out. Whatever is to
// talk to the clusters runs in there (Fixture.Command) or dials from there
// (Fixture.DialContext). The namespace is entered by setns alone, never by "ip
// netns exec", which would remount /sys and hide the cgroups containerd needs.
//
// Each cluster has a private mount namespace, held open by a process that does
// nothing else. Every process of a cluster can therefore be found without asking
// its components, and taking a cluster down is: kill what is in the mount
// namespace or in the cgroup of one of the cluster's containers. The kernel then
// drops the mounts, and with them the pods' network namespaces.
//
// # State
//
// The directory given as Options.Dir holds everything. Up makes what is missing
// and may be repeated; Open finds a fixture that another process made.
// Processes are recorded by pid and start time, so that a pid the kernel gave to
// somebody else is never signalled.
package physical
