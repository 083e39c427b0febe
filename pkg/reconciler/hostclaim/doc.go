// Package hostclaim decides which workspace holds each host that Ingresses name. What it
// decides stands in a HostClaim beside each Ingress; gateways obey it, and the tenant
// whose host is taken reads it there and in an Event on the Ingress.
//
// # The rule
//
// A host belongs to one workspace. The one that holds it keeps it for as long as any of
// its Ingresses names the host, so that nobody takes a host over by editing an older
// Ingress. A host that nobody holds goes to the oldest Ingress (creation, then uid).
//
// A wildcard is held like any host, and with it the hosts below it that nobody else
// holds: those who held one before keep it, and from then on only the wildcard's holder
// is given one. A rule without a host takes what is left over and holds nothing else
// back.
//
// # State
//
// The registry is derived: from the HostClaims, which say who holds what, and the
// Ingresses. A restart derives the same again. It costs an entry in memory per host that
// an Ingress names, and nothing per workspace.
package hostclaim
