// Package workspaces is the workspace tree: which path means which logical cluster,
// what stands in the tree from the start, where homes are, and what may be created
// where.
//
// # The tree
//
// A workspace is a Workspace object in its parent's logical cluster and a logical
// cluster of its own, whose random id (spec.cluster) is drawn when the object is
// created and never changes. A name that is deleted and used again gets a new id, so
// nothing of the old workspace can appear in the new one. The Index is derived from
// Workspace objects alone and is the same on every replica.
//
// # Types
//
// A workspace's type is a WorkspaceType object of an ancestor, usually root. Types()
// are those that every server has.
//
// # Homes
//
// Every user has one workspace under root:users, made when it is first asked for. Its
// name is made from the user's name, issuer included, and is the name people type.
//
// Package admission, below, holds the rules for Workspace objects; what happens inside
// a new or a deleted workspace is pkg/reconciler/workspace.
package workspaces
