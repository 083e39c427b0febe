// Package admission guards system-owned objects: what the product writes for tenants to
// read, and what no tenant may write, although tenants are admins of their workspaces.
//
// # What is system-owned
//
//   - Assignments, SyncReports, GatewayReports, GatewayInstances and HostClaims: every
//     object.
//   - Pods and EndpointSlices that carry label workload.kcp.io/target: a syncer mirrors
//     them up. A tenant may delete such a pod, which restarts it in its physical
//     cluster; nothing else.
//
// # Who may write
//
// The server's own loopback identity, and requests that a virtual workspace has checked
// and marked (WithSystemWriter). system:masters is not enough: an admin who writes an
// Assignment by hand breaks the handover, and one who wants to see what happens can
// read it.
//
// # Two gates
//
// FilterSystemOwned stands in the handler chain, refuses by resource, and marks the
// loopback's requests. WithOwnIdentity stands before impersonation, so that nobody
// becomes the loopback by impersonating it. Plugin is the validating admission plugin; it
// trusts marks only, never the user's name, and judges what is really written, after
// patches are applied. A chain that lacks one of the two filters refuses the server's own
// writes.
package admission
