package admission

import "context"

// Writer is a component that may write system-owned objects.
type Writer struct {
	component component
	// target is the target key of a syncer.
	target string
}

type component string

const (
	server  component = "server"
	syncer  component = "syncer"
	gateway component = "gateway"
)

// Syncer is the syncer of the SyncTarget with the given target key. It writes mirrored
// objects that carry that key, and no others.
func Syncer(targetKey string) Writer { return Writer{component: syncer, target: targetKey} }

// Gateway is any gateway. It writes no mirrored objects.
func Gateway() Writer { return Writer{component: gateway} }

// Server is the server itself. It writes everything.
func Server() Writer { return Writer{component: server} }

type writerKey struct{}

// WithSystemWriter marks a request as who's: its writes to system-owned objects have
// been checked. Only code that has checked them calls it.
func WithSystemWriter(ctx context.Context, who Writer) context.Context {
	return context.WithValue(ctx, writerKey{}, who)
}

// systemWriter returns the mark of a request; false when it has none.
func systemWriter(ctx context.Context) (Writer, bool) {
	w, ok := ctx.Value(writerKey{}).(Writer)
	return w, ok
}

// IsServer reports whether a request is marked as the server's own. Its user's name does
// not say: an administrator may impersonate that.
func IsServer(ctx context.Context) bool {
	w, _ := systemWriter(ctx)
	return w.component == server
}

// mayWriteMirrorOf reports whether w may write a mirrored object of the target with the
// given key.
func (w Writer) mayWriteMirrorOf(targetKey string) bool {
	switch w.component {
	case server:
		return true
	case syncer:
		return w.target != "" && w.target == targetKey
	default:
		return false
	}
}
