// Package bench measures the product against stock peers run beside it, and says what
// came out as one JSON line per figure.
//
// # What is measured
//
// Each Benchmark starts fresh servers as processes of their own and reports Figures. The
// figures P1 to P13 and their targets are those of docs/performance.md. The peer is a
// stock kube-apiserver with a namespace per tenant and etcd settings like ours, and for
// the gateway HAProxy.
//
// # What can be believed
//
// Machines are noisy, so what counts is the ratio of two servers that were asked in turn
// within one run, and CPU seconds of the server's process, from /proc, which are steadier
// than wall time. The client is a plain HTTP client, the same for both sides. Tenants are
// ordinary users with RBAC, not administrators, whom authorization costs nothing.
//
// Nothing here is a test of speed: the package's own test runs every benchmark at a tiny
// scale and asserts that the figures are there, not what they are.
package bench
