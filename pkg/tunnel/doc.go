// Package tunnel carries requests from the server into a physical cluster that the
// server cannot dial. The syncer of the cluster opens a connection to its virtual
// workspace and turns it around: the server then opens streams on it, and each stream is
// one HTTP/1.1 connection that the syncer serves.
//
//	syncer ── GET …/tunnel, Upgrade: kcp-tunnel.v1 ──▶ server
//	syncer ◀─────────── 101 Switching Protocols ────── server
//	syncer ◀═══ yamux streams, an HTTP request each ══ server
//
// HTTP/1.1 inside, since exec, attach and port-forward upgrade their connection, to SPDY
// or WebSocket, and HTTP/2 has no upgrade. Yamux below, since it gives every stream a
// window of its own: a log that nobody reads holds up no other.
//
// The package knows connections, not pods: what may be asked for is decided on both
// sides, by pkg/server/native and by pkg/syncer.
//
// # Replicas
//
// A server holds the tunnels that were opened to it, in memory. With several replicas of
// the server, a request that reaches another one finds none (ErrNotConnected). A syncer
// that opens a second tunnel replaces the first.
package tunnel

import (
	"io"
	"time"

	"github.com/hashicorp/yamux"
)

// Protocol is what a syncer asks to upgrade to.
const Protocol = "kcp-tunnel.v1"

const (
	// keepAlive is how often each side asks whether the other is there; a side that does
	// not answer within writeTimeout is taken for dead.
	keepAlive    = 15 * time.Second
	writeTimeout = 10 * time.Second
	// openTimeout is how long the other side may take to accept a stream.
	openTimeout = 10 * time.Second
	// maxStreams bounds the streams of one tunnel, to spare the syncer at its other end.
	maxStreams = 1000
	// MaxStreamsPerCluster bounds those of one logical cluster, so that one tenant's
	// clients leave some to all others who share the physical cluster.
	MaxStreamsPerCluster = maxStreams / 4
)

func config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.KeepAliveInterval = keepAlive
	c.ConnectionWriteTimeout = writeTimeout
	c.StreamOpenTimeout = openTimeout
	// What it would say, the end of the session says as well.
	c.LogOutput = io.Discard
	return c
}
