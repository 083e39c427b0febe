// Package report writes what a gateway has to say to the server: its own GatewayInstance,
// kept fresh, and a GatewayReport in every namespace that its table knows.
//
// A report is written when it says something new, a moment later at most, so that several
// changes make one write. What is in flight is news only while a target drains. Failed
// writes are repeated with growing pauses; the data plane never waits for any of this.
package report

import (
	"context"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Client writes objects of group networking.kcp.io.
type Client interface {
	// Put makes the object's spec say what is given, creating the object if need be.
	// Fields of the spec that are not given stay as they are.
	Put(ctx context.Context, resource string, key logicalcluster.Key, spec any) error
	// Delete deletes the object; that it does not exist is no error.
	Delete(ctx context.Context, resource string, key logicalcluster.Key) error
}

// The resources of the two kinds.
const (
	Reports   = "gatewayreports"
	Instances = "gatewayinstances"
)
