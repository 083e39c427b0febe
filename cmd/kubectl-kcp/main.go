// Command kubectl-kcp is kubectl's plugin for kcp: "kubectl kcp …". Under the name
// kubectl_complete-kcp it completes such command lines.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/13eedeaf/kcp/pkg/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	run := cli.Run
	if cli.IsCompleter(os.Args[0]) {
		run = cli.Complete
	}
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
