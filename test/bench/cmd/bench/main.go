// Command bench measures the figures of docs/performance.md; see package bench.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/13eedeaf/kcp/test/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	served, err := bench.ServeBare(ctx)
	if !served {
		err = run(ctx, os.Args[1:])
	}
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	o := bench.Options{Out: os.Stdout, Log: os.Stderr}
	fs.StringVar(&o.BinDir, "bin-dir", "bin", "directory of the binaries kcp, syncer, kubectl-kcp, kubectl and physical")
	fs.StringVar(&o.WorkDir, "dir", filepath.Join("_artifacts", "bench"), "directory of the servers' data and logs")
	figures := fs.String("figures", "", "figures to measure, such as P1,P3; empty means all")
	quick := fs.Bool("quick", false, "measure at a tiny scale, which only shows that the harness works")
	workspaces := fs.Int("workspaces", 0, "the largest number of workspaces; 0 means that of the scale")
	results := fs.String("results", "", "file of results, in which those of this run replace their predecessors, unless -quick")
	docs := fs.String("docs", "", "directory of performance.md, whose table and plots are made from the results; without -figures nothing is measured")
	fs.StringVar(&o.Profiles, "profiles", "", "directory for heap profiles of the server at the largest size and after deletion")
	fs.BoolVar(&o.Keep, "keep", false, "keep data and logs")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *figures != "" {
		o.Figures = strings.Split(*figures, ",")
	}
	o.Scale = bench.FullScale()
	if *quick {
		o.Scale = bench.QuickScale()
	}
	if *workspaces > 0 {
		o.Scale.Workspaces = *workspaces
		o.Scale.Namespaces = min(o.Scale.Namespaces, *workspaces)
	}
	for _, dir := range []*string{&o.BinDir, &o.WorkDir} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return err
		}
		*dir = abs
	}
	if *docs != "" && *figures == "" {
		return bench.WriteDocs(*docs, *results)
	}
	measured, err := bench.Run(ctx, o)
	// What was measured before something failed is kept.
	if *results != "" && !*quick {
		err = errors.Join(err, bench.MergeResults(*results, measured))
	}
	if *docs != "" && err == nil {
		err = bench.WriteDocs(*docs, *results)
	}
	return err
}
