// Package scheduling decides where namespaces run. It is pure: no client, no clock, no
// state of its own; the same input gives the same answer on every replica.
//
// # Locations
//
// EffectiveLocations computes which Locations a workspace sees: its own and its
// ancestors', the nearest of a name winning.
//
// # Decisions
//
// Judge looks at every target of every Location that a Placement selects and says
// whether a new namespace could go there now, and if not why. Decide answers for one
// namespace where it belongs. It keeps what the namespace has unless a rule forces a
// move, and tells when to ask again.
//
// What forces a move: the target is drained (evictAfter has come), deleted or gone, no
// selected Location contains it any longer, or its syncer has been silent for longer
// than the Placement tolerates. A cordon forces nothing. Where nothing can take over,
// the namespace stays and the answer says why for each candidate.
package scheduling
