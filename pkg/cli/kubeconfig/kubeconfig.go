// Package kubeconfig changes kubeconfig files without harm: only the entries that a
// change names are touched, each in the file that it came from; a file is replaced
// atomically with mode 0600, under the lock that kubectl uses too; nothing is written
// when nothing changes.
package kubeconfig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/13eedeaf/kcp/pkg/atomicfile"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
)

// Store is the kubeconfig in use: one file, or those of $KUBECONFIG.
type Store struct {
	options *clientcmd.PathOptions
}

// NewStore follows kubectl's rules: explicit (--kubeconfig) if given, else the files in
// $KUBECONFIG, else ~/.kube/config.
func NewStore(explicit string) *Store {
	options := clientcmd.NewDefaultPathOptions()
	options.LoadingRules.ExplicitPath = explicit
	return &Store{options: options}
}

// Load returns the merged kubeconfig with resolved paths; an empty one if there is no
// file.
func (s *Store) Load() (*clientcmdapi.Config, error) {
	rules := *s.options.LoadingRules
	rules.DoNotResolvePaths = false
	if rules.ExplicitPath != "" {
		if _, err := os.Stat(rules.ExplicitPath); errors.Is(err, fs.ErrNotExist) {
			return clientcmdapi.NewConfig(), nil
		}
	}
	cfg, err := rules.Load()
	if err != nil {
		return nil, problem.New("cannot read the kubeconfig: %s", problem.Reason(err)).
			Hint("see what is wrong with it: kubectl config view").Because(err)
	}
	return cfg, nil
}

// Files returns the files that there are, the one that counts most first.
func (s *Store) Files() []string {
	files := []string{}
	for _, file := range s.options.GetLoadingPrecedence() {
		if _, err := os.Stat(file); err == nil {
			files = append(files, file)
		}
	}
	return files
}

// Modify applies change to the merged kubeconfig and writes what it changed. It reports
// whether anything was written. The function may be called more than once.
func (s *Store) Modify(ctx context.Context, change func(*clientcmdapi.Config) error) (bool, error) {
	edits, err := s.plan(change)
	if err != nil || len(edits) == 0 {
		return false, err
	}
	// Someone may write between the look above and the lock, and send an entry to
	// another file; the lock is taken again then.
	for range 3 {
		locked := slices.Sorted(maps.Keys(edits))
		written, err := s.modifyLocked(ctx, locked, change)
		if !errors.Is(err, errMoved) {
			return written, err
		}
		if edits, err = s.plan(change); err != nil {
			return false, err
		}
	}
	return false, problem.New("the kubeconfig keeps changing under this command").Hint("try again when no other program writes it: kubectl config view")
}

var errMoved = errors.New("an entry moved to another file")

func (s *Store) modifyLocked(ctx context.Context, files []string, change func(*clientcmdapi.Config) error) (bool, error) {
	for _, file := range files {
		unlock, err := lock(ctx, file)
		if err != nil {
			return false, err
		}
		defer unlock()
	}
	edits, err := s.plan(change)
	if err != nil {
		return false, err
	}
	for file := range edits {
		if !slices.Contains(files, file) {
			return false, errMoved
		}
	}
	written := false
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return written, err
		}
		edit, ok := edits[file]
		if !ok {
			continue
		}
		did, err := apply(file, edit)
		if err != nil {
			return written, err
		}
		written = written || did
	}
	return written, nil
}

// edit is what changes in one file. A nil entry is removed.
type edit struct {
	clusters       map[string]*clientcmdapi.Cluster
	users          map[string]*clientcmdapi.AuthInfo
	contexts       map[string]*clientcmdapi.Context
	currentContext *string
}

// plan runs change on a copy of the merged kubeconfig and sorts the differences by
// file.
func (s *Store) plan(change func(*clientcmdapi.Config) error) (map[string]*edit, error) {
	old, err := s.Load()
	if err != nil {
		return nil, err
	}
	want := old.DeepCopy()
	if err := change(want); err != nil {
		return nil, err
	}
	edits := map[string]*edit{}
	at := func(origin string) *edit {
		if origin == "" {
			origin = s.options.GetDefaultFilename()
		}
		if edits[origin] == nil {
			edits[origin] = &edit{
				clusters: map[string]*clientcmdapi.Cluster{},
				users:    map[string]*clientcmdapi.AuthInfo{},
				contexts: map[string]*clientcmdapi.Context{},
			}
		}
		return edits[origin]
	}
	diff(old.Clusters, want.Clusters, func(c *clientcmdapi.Cluster) *string { return &c.LocationOfOrigin },
		func(origin, name string, c *clientcmdapi.Cluster) { at(origin).clusters[name] = c })
	diff(old.AuthInfos, want.AuthInfos, func(u *clientcmdapi.AuthInfo) *string { return &u.LocationOfOrigin },
		func(origin, name string, u *clientcmdapi.AuthInfo) { at(origin).users[name] = u })
	diff(old.Contexts, want.Contexts, func(c *clientcmdapi.Context) *string { return &c.LocationOfOrigin },
		func(origin, name string, c *clientcmdapi.Context) { at(origin).contexts[name] = c })
	if old.CurrentContext != want.CurrentContext {
		file, err := s.currentContextFile()
		if err != nil {
			return nil, err
		}
		at(file).currentContext = &want.CurrentContext
	}
	return edits, nil
}

// diff reports every entry that differs between old and want, and the file that it
// belongs to.
func diff[T any](old, want map[string]*T, origin func(*T) *string, report func(file, name string, entry *T)) {
	for name, entry := range want {
		before, had := old[name]
		if had {
			// An entry keeps the file that it came from, however it was built.
			*origin(entry) = *origin(before)
		}
		if !had || !equality.Semantic.DeepEqual(before, entry) {
			report(*origin(entry), name, entry)
		}
	}
	for name, before := range old {
		if _, has := want[name]; !has {
			report(*origin(before), name, nil)
		}
	}
}

// currentContextFile returns the file whose current-context counts: the first that has
// one.
func (s *Store) currentContextFile() (string, error) {
	if s.options.LoadingRules.ExplicitPath != "" {
		return s.options.LoadingRules.ExplicitPath, nil
	}
	for _, file := range s.options.GetLoadingPrecedence() {
		cfg, err := load(file)
		if err != nil {
			return "", err
		}
		if cfg.CurrentContext != "" {
			return file, nil
		}
	}
	return s.options.GetDefaultFilename(), nil
}

func apply(file string, e *edit) (bool, error) {
	cfg, err := load(file)
	if err != nil {
		return false, err
	}
	put(cfg.Clusters, e.clusters)
	put(cfg.AuthInfos, e.users)
	put(cfg.Contexts, e.contexts)
	if e.currentContext != nil {
		cfg.CurrentContext = *e.currentContext
	}
	data, err := clientcmd.Write(*cfg)
	if err != nil {
		return false, fmt.Errorf("cannot encode kubeconfig %q: %w", file, err)
	}
	target, err := resolve(file)
	if err != nil {
		return false, err
	}
	if old, err := os.ReadFile(target); err == nil && bytes.Equal(old, data) {
		return false, nil
	}
	return true, atomicfile.Write(target, data, 0o600)
}

func put[T any](to, changes map[string]*T) {
	for name, entry := range changes {
		if entry == nil {
			delete(to, name)
			continue
		}
		to[name] = entry
	}
}

// load reads one file alone; a missing one is empty.
func load(file string) (*clientcmdapi.Config, error) {
	cfg, err := clientcmd.LoadFromFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return clientcmdapi.NewConfig(), nil
	}
	if err != nil {
		return nil, problem.New("cannot read kubeconfig %q: %s", file, problem.Reason(err)).
			Hint("see what is wrong with it: kubectl config view --kubeconfig %s", file).Because(err)
	}
	return cfg, nil
}

// resolve follows symbolic links, so that a link stays one and the file behind it is
// replaced.
func resolve(file string) (string, error) {
	target, err := filepath.EvalSymlinks(file)
	if errors.Is(err, fs.ErrNotExist) {
		return file, nil
	}
	return target, err
}

// How long to wait for another program that holds the lock.
const (
	lockWait = 3 * time.Second
	lockPoll = 50 * time.Millisecond
)

// lock takes kubectl's lock on a kubeconfig file: a file beside it that must not exist.
func lock(ctx context.Context, file string) (func(), error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return nil, err
	}
	name := file + ".lock"
	ticker := time.NewTicker(lockPoll)
	defer ticker.Stop()
	deadline := time.NewTimer(lockWait)
	defer deadline.Stop()
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			_ = f.Close() // nothing was written
			// A lock that cannot be removed is explained to the next who meets it.
			return func() { _ = os.Remove(name) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-deadline.C:
			return nil, problem.New("kubeconfig %q is locked by %q", file, name).
				Hint("if no other program is writing it, remove the lock: rm %s", name).Because(err)
		case <-ticker.C:
		}
	}
}
