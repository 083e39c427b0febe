package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Options say what is measured and at which scale.
type Options struct {
	// BinDir has the binaries kcp, syncer, kubectl-kcp, kubectl and physical.
	BinDir string
	// WorkDir is where servers keep their data; it is removed at the end.
	WorkDir string
	// Figures are those to measure, such as P1; empty means all.
	Figures []string
	// Scale is how much is done.
	Scale Scale
	// Out receives one JSON line per figure, Log what is going on.
	Out, Log io.Writer
	// Keep leaves data and logs where they are.
	Keep bool
	// Profiles is a directory for heap profiles of the server with all workspaces and
	// without them again; empty for none.
	Profiles string
}

// Scale is how much of everything is done.
type Scale struct {
	// Workspaces is the largest number of workspaces; the steps to it are powers of ten.
	Workspaces int
	// Tree is how many workspaces are created in a tree.
	Tree int
	// Namespaces bounds the tenants of the stock server, whose controllers are slow.
	Namespaces int
	// Requests is how many GETs are compared; CREATEs are half, LISTs a fifth of it.
	Requests int
	// Starts is how often a server is started.
	Starts int
	// Updates is how many updates are sent to watchers.
	Updates int
	// Logins is how many users log in.
	Logins int
	// Syncs is how many objects go down and up.
	Syncs int
	// Moved are the numbers of objects in namespaces that are moved.
	Moved []int
	// SyncedNamespaces have ten objects each.
	SyncedNamespaces int
	// IdleSeconds is how long idle CPU is measured.
	IdleSeconds int
	// GatewaySeconds is how long each round of load on a gateway takes.
	GatewaySeconds float64
}

// FullScale is what the targets are stated at.
func FullScale() Scale {
	return Scale{
		Workspaces: 10000, Tree: 584, Namespaces: 1000, Requests: 1000, Starts: 3, Updates: 500, Logins: 30,
		Syncs: 200, Moved: []int{1, 10, 1000}, SyncedNamespaces: 1000, IdleSeconds: 30, GatewaySeconds: 5,
	}
}

// QuickScale only shows that the harness works.
func QuickScale() Scale {
	return Scale{
		Workspaces: 10, Tree: 12, Namespaces: 10, Requests: 20, Starts: 1, Updates: 10, Logins: 2,
		Syncs: 3, Moved: []int{1, 3}, SyncedNamespaces: 3, IdleSeconds: 1, GatewaySeconds: 0.3,
	}
}

// Benchmark measures some figures on servers of its own.
type Benchmark struct {
	Figures []string
	run     func(ctx context.Context, e *Env) error
}

// Benchmarks are all there are, in the order in which they run.
func Benchmarks() []Benchmark {
	return []Benchmark{
		{[]string{"P1", "P2", "P3", "P4", "P5", "P11"}, growth},
		{[]string{"P6"}, login},
		{[]string{"P8", "P9", "P10"}, syncing},
		{[]string{"P13"}, gatewayLoad},
	}
}

// Env is what a benchmark works with.
type Env struct {
	Options
	Results []Figure
}

// Run runs the benchmarks that measure a wanted figure and returns all figures, also
// those measured before something failed.
func Run(ctx context.Context, o Options) (_ []Figure, err error) {
	e := &Env{Options: o}
	if err := os.MkdirAll(o.WorkDir, 0o755); err != nil {
		return nil, err
	}
	for _, b := range Benchmarks() {
		if !slices.ContainsFunc(b.Figures, e.wants) {
			continue
		}
		if err := b.run(ctx, e); err != nil {
			return e.Results, fmt.Errorf("benchmark of %s: %w", strings.Join(b.Figures, ", "), err)
		}
	}
	return e.Results, nil
}

// wants reports whether a figure was asked for.
func (e *Env) wants(figure string) bool {
	return len(e.Figures) == 0 || slices.Contains(e.Figures, figure)
}

// report prints a figure and keeps it.
func (e *Env) report(f Figure) error {
	if !e.wants(f.Figure) {
		return nil
	}
	e.Results = append(e.Results, f)
	line, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("cannot encode figure %q: %w", f.Name, err)
	}
	_, err = fmt.Fprintf(e.Out, "%s\n", line)
	return err
}

// say tells a person what is going on.
func (e *Env) say(format string, args ...any) { fmt.Fprintf(e.Log, "bench: "+format+"\n", args...) }

func (e *Env) bin(name string) string { return filepath.Join(e.BinDir, name) }

// dir makes a fresh directory for a server.
func (e *Env) dir(name string) (string, error) {
	dir := filepath.Join(e.WorkDir, name)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// clear removes a server's data, which can be large.
func (e *Env) clear(s *apiServer) {
	s.close()
	if s != nil && !e.Keep {
		_ = os.RemoveAll(s.dir) // in the way of nothing
	}
}
