package version

import (
	"fmt"
	"net/http"
	"strconv"
)

// The sync protocol is what a syncer and the server's virtual workspace for it say to each
// other. Builds of one version may differ in it and builds of two may not, so it has a
// number of its own, which is raised with every change that one side has to know of.
const (
	// SyncProtocol is what this build speaks.
	SyncProtocol = 1
	// OldestSyncProtocol is the oldest that this build's server still understands: the
	// one before SyncProtocol, so that servers are updated first and syncers after them.
	OldestSyncProtocol = 1
)

// The headers by which syncer and server tell each other what they are, in every request
// and answer.
const (
	ProtocolHeader = "Kcp-Sync-Protocol"
	BuildHeader    = "Kcp-Version"
)

// SkewCause is the type of the cause in the Status by which the server refuses a syncer.
const SkewCause = "VersionSkew"

// maxBuild bounds what is believed of the other side's version.
const maxBuild = 64

// Peer is what one side says of itself.
type Peer struct {
	// Build is the version of the binary; empty if it was not told.
	Build string
	// Protocol is 0 if it was not told, as by builds that knew of none.
	Protocol int
}

// Self returns what this build says of itself.
func Self() Peer { return Peer{Build: version, Protocol: SyncProtocol} }

// Tell writes what p is into the header of a request or answer.
func (p Peer) Tell(h http.Header) {
	h.Set(ProtocolHeader, strconv.Itoa(p.Protocol))
	h.Set(BuildHeader, p.Build)
}

// PeerOf reads what the other side has told.
func PeerOf(h http.Header) (Peer, error) {
	p := Peer{Build: h.Get(BuildHeader)}
	if len(p.Build) > maxBuild {
		p.Build = p.Build[:maxBuild]
	}
	text := h.Get(ProtocolHeader)
	if text == "" {
		return p, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return Peer{}, fmt.Errorf("header %s: %q is no number of a sync protocol", ProtocolHeader, text)
	}
	p.Protocol = int(n)
	return p, nil
}

// String is the form in messages.
func (p Peer) String() string {
	build := p.Build
	if build == "" {
		build = "unknown"
	}
	return fmt.Sprintf("version %q, sync protocol %d", build, p.Protocol)
}

// RefuseSyncer returns in words why this build's server cannot work with the syncer of a
// SyncTarget, and what to do; "" when it can.
func RefuseSyncer(syncer Peer, syncTarget string) string {
	const stays = " What runs in the physical cluster goes on running."
	switch {
	case syncer.Protocol < OldestSyncProtocol:
		return fmt.Sprintf("The syncer (%s) is older than this server (%s) supports, which is sync protocol %d at least: update the syncer, with the manifest that \"kubectl kcp workload sync %s\" prints.", syncer, Self(), OldestSyncProtocol, syncTarget) + stays
	case syncer.Protocol > SyncProtocol:
		return fmt.Sprintf("The syncer (%s) is newer than this server (%s) supports: update the server first, or run a syncer of the server's version.", syncer, Self()) + stays
	default:
		return ""
	}
}

// RefuseServer returns in words why this build's syncer cannot work with a server, and
// what to do; "" when it can. A server that is newer knows itself what it supports.
func RefuseServer(server Peer) string {
	if server.Protocol >= SyncProtocol {
		return ""
	}
	return fmt.Sprintf("The server (%s) is older than this syncer (%s) supports: update the server first, or run a syncer of the server's version. What runs in the physical cluster goes on running.", server, Self())
}
