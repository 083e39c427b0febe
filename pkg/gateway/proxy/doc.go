// Package proxy is the gateway's data plane: an HTTP handler that sends requests to the
// endpoints of a routing table, the probes of those endpoints, and the counts of what is
// in flight.
//
// # Tables
//
// Swap puts a table in force at once and for all requests that have not picked an
// endpoint. State that outlives tables (health of an address, requests in flight to a
// target) is kept by address and by (namespace, target).
//
// # Choosing an endpoint
//
// In this order, and within each step the less busy of two drawn at random: ready
// endpoints of active targets; ready endpoints of draining targets; endpoints that
// terminate but still serve, of active, then of draining targets; at last ready ones that
// failed their probe, since a request may know better. Within each of the first four, those that
// answered their last probe come before those not probed yet. So a draining target gets
// nothing new while an active one has an endpoint, and a request fails only when nothing
// at all is left. Every endpoint weighs the same, so targets share by their number of
// healthy endpoints.
//
// # Retries
//
// A request goes to another endpoint when no connection could be made, whatever its
// method, and when the connection broke before any answer if the method is idempotent
// and the body can be sent again: it is absent, small enough to have been kept, or no
// byte of it was read.
//
// # In flight
//
// A request counts for its target from before the choice is final until the last byte of
// the answer, or of the stream it became. Whoever reads zero after Swap can rely on it:
// a request that chose by an older table and was not yet counted chooses again.
package proxy
