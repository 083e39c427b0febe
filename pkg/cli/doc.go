// Package cli is the command line of "kubectl kcp": flags and arguments become an
// Input, and a use case does the rest with Do(ctx, Input). The use cases stand in the
// packages below: login, workspace, workload, location, doctor. They reach the world
// through small seams: console (streams, browser), a clock, kubeconfig, tokencache,
// session (the server).
//
// # Promises
//
// Data goes to stdout, everything else to stderr. An error is one line and a hint with
// a command (pkg/cli/problem). Exit codes: 0 done, 1 failed, 2 called wrongly or
// cancelled, 4 login needed. Nothing asks a question without a terminal.
//
// The binary is kubectl's plugin and its credential plugin at once. It imports no
// package of the server.
package cli
