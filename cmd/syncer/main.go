// Command syncer is the agent of a physical cluster; see package syncer.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/13eedeaf/kcp/pkg/exitcode"
	"github.com/13eedeaf/kcp/pkg/syncer"
)

// gcPercent keeps the heap at one and a half times of what lives. A syncer sits beside
// somebody's workloads and is idle most of the time: memory is dearer than CPU there.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := syncer.NewCommand()
	exitcode.Mark(root)
	cmd, err := root.ExecuteContextC(ctx)
	stop()
	klog.Flush()
	os.Exit(exitcode.Report(os.Stderr, cmd, err))
}
