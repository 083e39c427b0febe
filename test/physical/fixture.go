package physical

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// Fixture is a set of clusters in one network namespace.
type Fixture struct {
	opts     Options
	clusters []*Cluster

	logMu sync.Mutex
}

// stateFile is what Open reads. It is written before anything is started and
// removed after everything is gone.
const stateFile = "fixture.json"

type state struct {
	BinDir   string   `json:"binDir"`
	Netns    string   `json:"netns"`
	Clusters []string `json:"clusters"`
	Runtime  string   `json:"runtime"`
}

func newFixture(o Options) *Fixture {
	f := &Fixture{opts: o}
	for i, name := range o.Clusters {
		f.clusters = append(f.clusters, &Cluster{fixture: f, name: name, number: i + 1})
	}
	return f
}

// Up makes the fixture, or what is missing of it, and returns when every node is
// ready. When it fails, what was started is left for inspection: take it down
// with Open and Down.
func Up(ctx context.Context, o Options) (*Fixture, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	if err := Check(o.BinDir); err != nil {
		return nil, err
	}
	f := newFixture(o)
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make directory of the fixture: %w", err)
	}
	unlock, err := f.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := f.adopt(); err != nil {
		return nil, err
	}
	return f, f.up(ctx)
}

func (f *Fixture) up(ctx context.Context) error {
	began := time.Now()
	addresses := []string{}
	for _, c := range f.clusters {
		addresses = append(addresses, c.Address(), c.serviceIP(1))
	}
	if err := f.netns().ensure(ctx, addresses); err != nil {
		return err
	}
	f.logf("network namespace %s is up", f.opts.Netns)
	if err := f.buildImages(); err != nil {
		return err
	}
	f.logf("images are built")
	group, groupCtx := errgroup.WithContext(ctx)
	for _, c := range f.clusters {
		group.Go(func() error { return c.up(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	f.logf("all clusters are ready (%s)", time.Since(began).Round(100*time.Millisecond))
	return nil
}

// adopt records the fixture in its directory, or finds that it is recorded
// there already and the same.
func (f *Fixture) adopt() error {
	want := state{BinDir: f.opts.BinDir, Netns: f.opts.Netns, Clusters: f.opts.Clusters, Runtime: f.opts.Runtime}
	have, err := readState(f.opts.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if f.netns().exists() {
			return fmt.Errorf("network namespace %q exists already: choose another name, or take down the fixture it belongs to", f.opts.Netns)
		}
		// All that may be there are the logs of a previous fixture.
		for _, c := range f.clusters {
			if err := os.RemoveAll(c.path()); err != nil {
				return fmt.Errorf("cannot remove old logs: %w", err)
			}
		}
	case err != nil:
		return err
	case have.Netns != want.Netns || have.Runtime != want.Runtime || strings.Join(have.Clusters, ",") != strings.Join(want.Clusters, ","):
		return fmt.Errorf("directory %q holds another fixture, with clusters %q in network namespace %q: take it down first", f.opts.Dir, have.Clusters, have.Netns)
	}
	data, err := json.MarshalIndent(want, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot record the fixture: %w", err)
	}
	if err := os.WriteFile(filepath.Join(f.opts.Dir, stateFile), data, 0o600); err != nil {
		return fmt.Errorf("cannot record the fixture: %w", err)
	}
	return nil
}

func readState(dir string) (state, error) {
	s := state{}
	data, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return s, fmt.Errorf("no fixture in %q: %w", dir, err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("cannot read the record of the fixture in %q: %w", dir, err)
	}
	return s, nil
}

// Open returns the fixture that Up made in o.Dir, whether or not it runs; of the
// other options only Log and Timeout are used. The error wraps fs.ErrNotExist if
// there is none.
func Open(o Options) (*Fixture, error) {
	s, err := readState(o.Dir)
	if err != nil {
		return nil, err
	}
	o.BinDir, o.Netns, o.Clusters, o.Runtime = s.BinDir, s.Netns, s.Clusters, s.Runtime
	o, err = o.complete()
	if err != nil {
		return nil, err
	}
	return newFixture(o), nil
}

// Down ends all processes of the fixture and removes everything except the
// components' logs. It does not touch what others run in the network namespace,
// which lives on, without its name, until they end.
func (f *Fixture) Down(ctx context.Context) error {
	unlock, err := f.lock()
	if err != nil {
		return err
	}
	defer unlock()
	group := errgroup.Group{}
	for _, c := range f.clusters {
		group.Go(func() error { return c.remove(ctx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := f.netns().remove(ctx); err != nil {
		return err
	}
	for _, name := range []string{imagesFile, stateFile, lockFile} {
		if err := os.RemoveAll(filepath.Join(f.opts.Dir, name)); err != nil {
			return fmt.Errorf("cannot remove state: %w", err)
		}
	}
	f.logf("everything is down, logs are in %s", f.opts.Dir)
	return nil
}

// Netns is the name of the network namespace.
func (f *Fixture) Netns() string { return f.opts.Netns }

// Clusters returns all clusters in the order of Options.Clusters.
func (f *Fixture) Clusters() []*Cluster { return f.clusters }

// Cluster returns the cluster with a name, or nil.
func (f *Fixture) Cluster(name string) *Cluster {
	for _, c := range f.clusters {
		if c.name == name {
			return c
		}
	}
	return nil
}

// Command prepares a command that will run in the network namespace. It keeps
// the pid it is started with.
func (f *Fixture) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + f.netns().path(), "--", name}, args...)...)
}

// Exec runs a command in the network namespace and returns its standard output.
// What it wrote to standard error is part of the error.
func (f *Fixture) Exec(ctx context.Context, command ...string) ([]byte, error) {
	if len(command) == 0 {
		return nil, errors.New("no command to run")
	}
	out, err := f.Command(ctx, command[0], command[1:]...).Output()
	if exit := (&exec.ExitError{}); errors.As(err, &exit) {
		return out, fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return out, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return out, nil
}

// DialContext connects to an IP address and port from within the network
// namespace; it fits http.Transport and rest.Config.
func (f *Fixture) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return f.netns().dial(ctx, network, address)
}

func (f *Fixture) netns() netns { return netns(f.opts.Netns) }

const lockFile = "lock"

// lock keeps two processes from changing the fixture at once. The kernel
// releases it if this process dies.
func (f *Fixture) lock() (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(f.opts.Dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the fixture: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot lock the fixture in %q, is it in use by another command? %w", f.opts.Dir, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}

func (f *Fixture) logf(format string, args ...any) {
	f.logMu.Lock()
	defer f.logMu.Unlock()
	fmt.Fprintf(f.opts.Log, "physical: "+format+"\n", args...)
}
