package table

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/13eedeaf/kcp/pkg/atomicfile"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// fileVersion is raised when older files can no longer be read right.
const fileVersion = 1

type file struct {
	Version    int                            `json:"version"`
	Revision   int64                          `json:"revision"`
	Namespaces []*Namespace                   `json:"namespaces"`
	Holders    map[string]logicalcluster.Name `json:"holders"`
}

// MarshalJSON returns the form that stands on disk, sorted.
func (t *Table) MarshalJSON() ([]byte, error) {
	return json.Marshal(file{
		Version:  fileVersion,
		Revision: t.Revision,
		Namespaces: slices.SortedFunc(maps.Values(t.Namespaces), func(x, y *Namespace) int {
			return compareKeys(x.NamespaceKey, y.NamespaceKey)
		}),
		Holders: t.holders(),
	})
}

func (t *Table) holders() map[string]logicalcluster.Name {
	out := make(map[string]logicalcluster.Name, len(t.hosts))
	for name, h := range t.hosts {
		out[name] = h.holder
	}
	return out
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (t *Table) UnmarshalJSON(data []byte) error {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	if f.Version != fileVersion {
		return fmt.Errorf("routing table of version %d, want %d", f.Version, fileVersion)
	}
	out := Table{Revision: f.Revision, Namespaces: make(map[NamespaceKey]*Namespace, len(f.Namespaces))}
	for _, ns := range f.Namespaces {
		if err := ns.check(); err != nil {
			return err
		}
		out.Namespaces[ns.NamespaceKey] = ns
	}
	// The holders first, as hosts without claims: index lets them keep what they claim.
	held := &Table{hosts: make(map[string]*host, len(f.Holders))}
	for name, holder := range f.Holders {
		held.hosts[name] = &host{holder: holder}
	}
	out.index(held, slices.Collect(maps.Keys(out.Namespaces)))
	maps.DeleteFunc(out.hosts, func(_ string, h *host) bool { return len(h.claims) == 0 })
	*t = out
	return nil
}

// check refuses indexes that point nowhere, so that a damaged file cannot break a request.
func (ns *Namespace) check() error {
	if ns == nil {
		return errors.New("routing table with an empty namespace")
	}
	bad := func(n int) bool { return n < 0 || n >= len(ns.Backends) }
	for _, i := range ns.Ingresses {
		for _, h := range i.Hosts {
			if h.Default != nil && bad(*h.Default) || slices.ContainsFunc(h.Paths, func(p PathRule) bool { return bad(p.Backend) }) {
				return fmt.Errorf("routing table: ingress %q in %s/%s refers to a backend that is not there", i.Name, ns.Cluster, ns.Namespace)
			}
		}
	}
	return nil
}

// Load reads a table from a file. It returns nil when there is no file.
func Load(path string) (*Table, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the routing table: %w", err)
	}
	t := &Table{}
	if err := json.Unmarshal(data, t); err != nil {
		return nil, fmt.Errorf("cannot read the routing table %q: %w", path, err)
	}
	return t, nil
}

// Save writes the table to a file, whose directory must exist.
func (t *Table) Save(path string) error {
	data, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("cannot encode the routing table: %w", err)
	}
	if err := atomicfile.Write(path, data, 0o600); err != nil {
		return fmt.Errorf("cannot save the routing table: %w", err)
	}
	return nil
}
