package etcd

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"go.etcd.io/etcd/client/pkg/v3/logutil"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// failures turns etcd's way to give up into an error. What etcd cannot recover from, such
// as a database that it cannot read or a disk that is full, it writes to its log at a
// level that panics or ends the process, on whatever goroutine it happens. Here that
// goroutine ends, and the first message is kept.
type failures struct {
	happened chan struct{}
	once     sync.Once
	err      error
}

func newFailures() *failures { return &failures{happened: make(chan struct{})} }

// error returns the first failure; call it once happened is closed.
func (f *failures) error() error { return f.err }

func (f *failures) report(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.happened)
	})
}

// OnWrite implements zapcore.CheckWriteHook. It does not return: nothing that logs at
// these levels expects to go on.
func (f *failures) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New(entry.Message)
	for _, field := range fields {
		if cause, ok := field.Interface.(error); ok {
			err = fmt.Errorf("%s: %w", entry.Message, cause)
			break
		}
	}
	f.report(err)
	runtime.Goexit()
}

// newLogger returns etcd's own logger, which writes warnings and worse to a file, with
// the hook in place.
func newLogger(file string, f *failures) (*zap.Logger, error) {
	cfg := logutil.DefaultZapLoggerConfig
	cfg.Level = zap.NewAtomicLevelAt(zap.WarnLevel)
	cfg.OutputPaths, cfg.ErrorOutputPaths = []string{file}, []string{file}
	return cfg.Build(zap.WithPanicHook(f), zap.WithFatalHook(f))
}

// start is embed.StartEtcd, which may panic, end its goroutine, or wait for ever for
// another one that has ended. What it leaves behind then is gone with the process.
func (f *failures) start(ctx context.Context, cfg *embed.Config) (*embed.Etcd, error) {
	type result struct {
		etcd *embed.Etcd
		err  error
	}
	started := make(chan result, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				f.report(fmt.Errorf("etcd panicked: %v", r))
			}
		}()
		etcd, err := embed.StartEtcd(cfg)
		started <- result{etcd, err}
	}()
	select {
	case r := <-started:
		return r.etcd, r.err
	case <-f.happened:
		return nil, f.error()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
