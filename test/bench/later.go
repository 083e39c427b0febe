package bench
import "context"
func login(ctx context.Context, e *Env) error { return nil }
func syncing(ctx context.Context, e *Env) error { return nil }
func gatewayLoad(ctx context.Context, e *Env) error { return nil }
