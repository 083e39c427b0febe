// Command kubectl-kcp is kubectl's plugin for kcp: "kubectl kcp …".
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
	code := cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
