// Package virtual serves virtual workspaces: views of many logical clusters for one
// component, under /services/<name>.
//
//   - syncer: what one SyncTarget may see and write (syncer.go).
//   - gateway: what the global ingress needs (gateway.go).
//   - locations: the Locations that a workspace sees (locations.go).
//
// Each is a table (workspace) over the one builder in this package: how to enter it,
// which resources it shows to whom, what may be written and under which rule. The
// caller is authenticated before; this package authorizes, and forwards single-object
// requests to the main API with the caller as user and a mark that system-owned
// objects may be written (pkg/server/admission).
//
// # Hubs
//
// Each resource of a workspace has one hub over the server's one informer of that
// resource. A hub groups objects by audience: everybody, one target, or the targets to
// which a namespace is assigned. A change goes to the streams of its audience; an
// object whose audience changes is ADDED for those who gain it and DELETED for those
// who lose it. There is nothing per namespace but map entries; a stream costs its HTTP
// request's goroutine and a bounded queue. A stream that does not keep up is closed,
// and its client starts a new one.
//
// # What a stream promises
//
// The whole state as ADDED, then a bookmark with annotation k8s.io/initial-events-end,
// then changes. An Assignment that appears sends its namespace's objects as ADDED, one
// that is gone sends them as DELETED. Their resourceVersions may be older than others
// sent before, so a stream cannot be resumed: any other start is 410 Expired.
//
// Whether a client may read is asked when its stream begins. A stream ends with its
// SyncTarget, and after an hour at most: that is how long rights that were taken away
// can still be used.
//
// # When an Assignment is served
//
// A hub serves an Assignment once it has told its streams everything that was written
// before the Assignment: its informer has reached the Assignment's revision, or, for a
// resource where nothing happens, a consistent list of the namespace shows nothing that
// the hub does not hold. A stream's bookmark waits for every Assignment that the server
// knew when the stream began. So a client that has the initial state of `assignments`
// first, and opens its other streams then, has after their bookmarks all objects of all
// namespaces that it was told of. For an Assignment that appears later, its objects may
// come before or after it, since streams are not ordered among themselves.
//
// # Time
//
// When a syncer or a gateway was heard is stamped here, by the server's clock: what the
// clock of another machine says cannot make it look silent, or alive.
//
// # Locks
//
// The lock of an informer, then assignments.mu, then hub.mu; none is taken in another
// order. Nothing blocks under them.
package virtual
