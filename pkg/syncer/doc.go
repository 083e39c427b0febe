// Package syncer is the agent of a physical cluster. It pulls the namespaces that are
// assigned to its SyncTarget from the control plane, runs them in the physical cluster,
// and tells the control plane what has come of them. It knows the control plane only by
// its virtual workspace and imports nothing of the server.
//
// # What goes where
//
//	workspace                                      physical cluster
//	namespace with an Assignment   ── namespaces ─▶  namespace kcp-<hash>
//	its objects                    ──── objects ──▶  the same objects, server-side applied
//	SyncReports                    ◀─── objects ───  their status, or why they failed
//	mirrored Pods, EndpointSlices  ◀─── mirrors ───  pods and slices made by controllers
//	SyncTarget status              ◀── heartbeat ──  versions, capacity
//
// Each arrow is one queue with several workers, keyed by namespace, object or mirror, so
// that a slow one holds up no other. Nothing is remembered that could not be read again
// on both sides, but for hints that save writes.
//
// # Deletion
//
// A downstream namespace goes when its Assignment is being deleted, or when there is
// none; a downstream object goes when the workspace has none of that name. "There is
// none" is never concluded from a stream alone: the streams must have been whole once,
// and the control plane must answer 404 for the very object when asked again. So a
// server that is away, restarts, or serves a stream with holes deletes nothing. When the
// server says that the SyncTarget itself is gone, all that was made for it goes.
//
// # Identity
//
// All that the syncer makes downstream carries its instance id, and it touches nothing
// that does not; see package names.
//
// # Watches
//
// Namespaces and synced kinds are watched by label. Pods and endpoint slices made by
// controllers carry no label of ours (a label in the pod template would change the
// user's template), so these two are watched across the cluster and picked by namespace
// in memory. What is cached is kept encoded; see jsonCodec.
//
// Secrets and ConfigMaps may be read namespace by namespace only, and a watch for each
// would take more memory than what it watches. So they are not watched: what was applied
// is noted (ledger), and a sweep with a fixed rate of requests lists their metadata and
// has those looked at that differ from the notes (sweep). Events are watched in the
// namespaces where something happens, for a while (telling); the sweep sees those
// elsewhere.
package syncer
