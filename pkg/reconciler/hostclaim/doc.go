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
// A wildcard is a host of its own name here, and keeps nobody from naming a host below
// it: whoever names a host exactly is preferred, by whomever the wildcard is held, and
// gateways lead there what nobody names. Whoever wants to keep a name names it. A rule
// without a host takes what is left over.
//
// # State
//
// The registry is derived: from the HostClaims, which say who holds what, and the
// Ingresses. A restart derives the same again. It costs an entry in memory per host that
// an Ingress names, and nothing per workspace.
package hostclaim
