// Package placement connects the scheduler to the server's objects.
//
// # Fleet
//
// Fleet is what the scheduler sees: targets by their keys, which Location selects
// which, the effective Locations of a workspace, how many namespaces a target has. It
// is derived from shared informers and kept until something relevant changes; a
// heartbeat alone is not relevant. The controllers that decide, and those that report,
// share one Fleet.
//
// # Controller
//
// Controller writes the status of Placements: whether and why each target could take a
// new namespace, in words for the tenant. Where namespaces go is decided by package
// handover, one namespace at a time.
package placement
