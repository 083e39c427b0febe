// Package table is the gateway's routing table: plain data made by pure functions from
// what tenants and syncers wrote.
//
// # Parts
//
// The unit is the Namespace: its Ingresses, the targets it is assigned to, and the
// endpoints of every Ingress backend. BuildNamespace makes one from the API objects of
// that namespace alone. Update puts namespaces together into a Table. Match finds the route of a request.
//
// # What is served
//
// Ingresses of class "kcp" or of no class; all others are left to whoever they are for.
// Hosts are exact, a wildcard of one label ("*.example.com") or absent; the most specific
// host answers alone, whichever workspaces hold less specific ones, and there is no falling
// through to those. Paths are Exact, or Prefix by path element; ImplementationSpecific
// means Prefix. A default backend answers for the hosts of its own Ingress only, and for
// all hosts where the Ingress has no rules. Backends are Services; a resource backend, a
// missing Service or port, and a Service of type ExternalName have no endpoints.
//
// # Hosts
//
// A host belongs to one workspace. The server decides which, and says so in the HostClaim
// beside each Ingress: a rule whose host is not held is as if it were not there, but for
// its backends, which are probed all the same. While a host changes hands two workspaces
// may seem to hold it for a moment, and the one that had it keeps it. Within the
// workspace the same path claimed twice goes to the oldest Ingress.
//
// # Endpoints
//
// Only mirrored EndpointSlices count, and only those of a target that has an Assignment
// in the namespace. Tenants can write neither.
//
// # Revisions
//
// Revisions are milliseconds of the clock, pushed forward where the clock did not move or
// went back, so that they grow across restarts. A Namespace carries the revision of the
// table in which it last changed.
package table
