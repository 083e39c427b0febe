// Command syncer is the agent of a physical cluster; see package syncer.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/13eedeaf/kcp/pkg/exitcode"
	"github.com/13eedeaf/kcp/pkg/syncer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := syncer.NewCommand()
	exitcode.Mark(root)
	cmd, err := root.ExecuteContextC(ctx)
	stop()
	klog.Flush()
	os.Exit(exitcode.Report(os.Stderr, cmd, err))
}
