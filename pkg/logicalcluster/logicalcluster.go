// Package logicalcluster is the only place that knows what a logical cluster is: its
// name (an immutable id), the path by which people call it, and how both travel in a
// request's context and on an object.
//
// # Names
//
// A Name is the id under which storage keeps a cluster's objects: 16 characters drawn
// at random for a workspace, or one of the fixed names below. It is a DNS label and
// never changes; a workspace that is deleted and made again gets a new one.
//
// # Paths
//
// A Path is what people type: root:org:team. Its first segment is a Name (usually
// root), the rest are Workspace object names. pkg/workspaces resolves it to a Name.
//
// # Contexts
//
// Every request carries the cluster that it speaks to. A missing cluster is an error
// (FromContext), never a default, so that code which forgets it fails closed.
package logicalcluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Name identifies one logical cluster. It is a DNS label of at most 63 characters.
type Name string

const (
	// Root is the top of the workspace tree. Its name is also the first segment of
	// every path.
	Root Name = "root"
	// System holds what exists once for the whole server: bootstrap RBAC, priority
	// and fairness defaults, identity leases. Tenants cannot reach it.
	System Name = "system"
	// Wildcard stands for all clusters in list and watch requests of the server's own
	// components. It is never the home of an object.
	Wildcard Name = "*"
)

const (
	// AnnotationKey names the annotation that carries an object's cluster. The storage
	// layer stamps it; what a client sends under this key is overwritten.
	AnnotationKey = "kcp.io/cluster"
	// PathAnnotationKey names the annotation that carries a workspace's path on
	// LogicalCluster and Workspace objects.
	PathAnnotationKey = "kcp.io/path"
)

// ErrNoCluster is returned when a context carries no logical cluster.
var ErrNoCluster = errors.New("no logical cluster in the request context")

var nameRE = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// idAlphabet has no vowels and no look-alikes, so that an id is never a word.
const idAlphabet = "bcdfghjklmnpqrstvwxz2456789"

// NewID returns a fresh random name of 16 characters that starts with a letter.
func NewID() Name {
	id := make([]byte, 0, 16)
	buf := make([]byte, 32)
	for len(id) < 16 {
		// crypto/rand.Read never fails; it ends the program when the system has no
		// randomness.
		_, _ = rand.Read(buf)
		for _, b := range buf {
			// Reject the tail of the byte range so that every letter is equally likely.
			if int(b) >= 256-256%len(idAlphabet) || len(id) == 16 {
				continue
			}
			c := idAlphabet[int(b)%len(idAlphabet)]
			if len(id) == 0 && c < 'a' {
				continue
			}
			id = append(id, c)
		}
	}
	return Name(id)
}

// Valid reports whether n can name a cluster that holds objects; Wildcard cannot.
func (n Name) Valid() bool { return nameRE.MatchString(string(n)) }

func (n Name) String() string { return string(n) }

// Path returns the path that consists of this name alone.
func (n Name) Path() Path { return Path(n) }

// Path is a colon-separated workspace path such as root:org:team.
type Path string

// ParsePath checks the form of a path: one or more DNS labels joined by colons.
// The error quotes the input and says what is expected.
func ParsePath(s string) (Path, error) {
	for _, segment := range strings.Split(s, ":") {
		if !nameRE.MatchString(segment) {
			return "", fmt.Errorf("workspace path %q is malformed: segments are lower-case letters, digits and '-', joined by ':' (for example root:org:team)", s)
		}
	}
	return Path(s), nil
}

func (p Path) String() string { return string(p) }

// Join appends one segment.
func (p Path) Join(name string) Path {
	if p == "" {
		return Path(name)
	}
	return Path(string(p) + ":" + name)
}

// Split returns the segments of p.
func (p Path) Split() []string { return strings.Split(string(p), ":") }

// Base returns the last segment.
func (p Path) Base() string {
	segments := p.Split()
	return segments[len(segments)-1]
}

// Parent returns the path above p; false when p has a single segment.
func (p Path) Parent() (Path, bool) {
	i := strings.LastIndexByte(string(p), ':')
	if i < 0 {
		return "", false
	}
	return p[:i], true
}

// RequestPath returns the URL path under which the server serves p.
func (p Path) RequestPath() string { return "/clusters/" + string(p) }

type contextKey struct{}

// WithCluster returns a context whose requests speak to the named cluster.
func WithCluster(ctx context.Context, n Name) context.Context {
	return context.WithValue(ctx, contextKey{}, n)
}

// FromContext returns the cluster of a request: a valid name or Wildcard. It returns
// ErrNoCluster when there is none.
func FromContext(ctx context.Context) (Name, error) {
	n, ok := ctx.Value(contextKey{}).(Name)
	if !ok || n == "" {
		return "", ErrNoCluster
	}
	return n, nil
}

// From returns the cluster that an object read from the server belongs to, or "" when
// it carries none.
func From(obj metav1.Object) Name { return Name(obj.GetAnnotations()[AnnotationKey]) }

// Key identifies an object across all clusters. Namespace is empty for objects that
// have none.
type Key struct {
	Cluster   Name
	Namespace string
	Name      string
}

// KeyOf returns the key of an object read from the server.
func KeyOf(obj metav1.Object) Key {
	return Key{Cluster: From(obj), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// String returns cluster|namespace/name, the form used in logs and as a store's key.
func (k Key) String() string {
	if k.Namespace == "" {
		return string(k.Cluster) + "|" + k.Name
	}
	return string(k.Cluster) + "|" + k.Namespace + "/" + k.Name
}
