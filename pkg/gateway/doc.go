// Package gateway is `kcp gateway`, the global ingress: a process of its own that serves
// HTTP for the Ingresses of all workspaces, so that the server can stop and start without
// costing a request.
//
// # Flow
//
// Streams of the gateway's virtual workspace (inputs) feed the builder, which makes
// routing tables (package table) and puts them in force in the data plane (package
// proxy). What the data plane knows goes back as GatewayReports and a GatewayInstance
// (package report).
//
// # When the server is away
//
// The table in force stays in force, and the last one stands on disk for the next start.
// A stream that begins anew replays its state apart from the others, so that for a moment
// assignments and endpoints may not fit together: the builder waits until all streams
// have replayed, and after holdTable takes what there is.
//
// This package and those below import nothing of the server.
package gateway
