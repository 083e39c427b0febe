// Package handover is the one way anything moves: it brings the Assignments of a
// namespace to what the scheduler decides, and lets nothing go before its replacement
// does the work.
//
// # Steps
//
// For desired targets D and present Assignments A of a namespace:
//
//  1. Each of D \ A is created. It is Syncing until the target runs everything in full
//     and, where the namespace has an Ingress, every live gateway has confirmed healthy
//     endpoints there; then it is Serving.
//  2. Once all of D serve, those of A \ D become Draining: gateways send them nothing
//     new.
//  3. When every live gateway reports that it sends nothing there and that nothing is in
//     flight, or the drain's deadline has passed (its clock starts when the last gateway
//     has switched, and only if something is still in flight), the Assignment is
//     deleted. Its finalizer keeps it until the target's syncer has removed the copy.
//
// # Rules
//
// An empty set of replacements never serves. No live gateway confirms nothing; one
// whose lease ran out blocks until its grace ends. Where the old copy itself is broken, a
// replacement that does no worse in anything is enough, after Patience. If a replacement
// stops working while the old copy drains, the old copy is given traffic again. The old
// side is not drained but let go at once, when its replacement serves, if its syncer is
// known to be silent beyond toleration; the finalizer then fences its return. If its
// SyncTarget no longer exists there is nobody to wait for, and the server takes the
// finalizer away itself.
//
// # State
//
// Plan is a pure function of what stands in the API now; nothing depends on having seen
// an event, and nothing is remembered between calls.
package handover

import "time"

// GatewayGrace is how long after its lease ran out a gateway still blocks a handover: it
// may be cut off from the server and go on sending traffic.
const GatewayGrace = 30 * time.Second
