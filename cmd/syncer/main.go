// Command syncer is the agent of a physical cluster; see package syncer.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/13eedeaf/kcp/pkg/exitcode"
	"github.com/13eedeaf/kcp/pkg/heap"
	"github.com/13eedeaf/kcp/pkg/syncer"
)

// pace keeps the heap at one and a half times of what lives, if that is much. A syncer
// sits beside somebody's workloads and is idle most of the time: memory is dearer than CPU.
var pace = heap.Pace{AtLeast: 8 << 20, Percent: 50}

func main() {
	heap.Keep(pace)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stderr)
	stop()
	os.Exit(code)
}

// run runs the command, says on stderr why it failed, and returns the exit code.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	root := syncer.NewCommand()
	root.SetArgs(args)
	exitcode.Mark(root)
	cmd, err := root.ExecuteContextC(ctx)
	klog.Flush()
	return exitcode.Report(stderr, cmd, err)
}
