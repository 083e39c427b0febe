package workspaces

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"

	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
)

// ErrNoHome is returned for identities that are no people.
var ErrNoHome = errors.New("only people who have logged in have a home workspace")

// CreateWorkspace creates a Workspace object through the API, as the server itself.
type CreateWorkspace func(ctx context.Context, parent logicalcluster.Name, ws *tenancyv1alpha1.Workspace) (*tenancyv1alpha1.Workspace, error)

// Home makes users' home workspaces. It is safe for concurrent use.
type Home struct {
	index      *Index
	workspaces *informer.Informer[*tenancyv1alpha1.Workspace]
	create     CreateWorkspace

	mu      sync.Mutex
	waiters map[logicalcluster.Key][]chan struct{}
}

// Create returns a CreateWorkspace over c.
func Create(c *clients.Clients) CreateWorkspace {
	return func(ctx context.Context, parent logicalcluster.Name, ws *tenancyv1alpha1.Workspace) (*tenancyv1alpha1.Workspace, error) {
		return c.Workspaces(parent).Create(ctx, ws, metav1.CreateOptions{})
	}
}

// NewHome returns Home over the index's informer.
func NewHome(index *Index, create CreateWorkspace) *Home {
	h := &Home{index: index, workspaces: index.workspaces, create: create, waiters: map[logicalcluster.Key][]chan struct{}{}}
	index.workspaces.AddHandler(func(event informer.Event[*tenancyv1alpha1.Workspace]) { h.wake(event.Key) })
	return h
}

const (
	// hashLength is how many characters of the user name's hash are in a home's name;
	// longHashLength where two users share the short one.
	hashLength, longHashLength = 8, 26
	maxLocalPart               = 36
)

var hashEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// HomeName returns the name of a user's home workspace, a DNS label: the part of the
// user's name that people call themselves by, and hash characters of the whole name,
// issuer included, so that the alice of one issuer is not the alice of another.
func HomeName(username string) string { return homeName(username, hashLength) }

func homeName(username string, hash int) string {
	sum := sha256.Sum256([]byte(username))
	return localPart(username) + "-" + strings.ToLower(hashEncoding.EncodeToString(sum[:]))[:hash]
}

// localPart reduces a user name such as https://issuer.example.com#Alice@example.com to
// a typable label: alice.
func localPart(username string) string {
	s := username
	if i := strings.LastIndexAny(s, "#/"); i >= 0 && i < len(s)-1 {
		s = s[i+1:]
	}
	if i := strings.IndexByte(s, '@'); i > 0 {
		s = s[:i]
	}
	if i := strings.LastIndexByte(s, ':'); i >= 0 && i < len(s)-1 {
		s = s[i+1:]
	}
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else if label := b.String(); label != "" && !strings.HasSuffix(label, "-") {
			b.WriteByte('-')
		}
	}
	label := b.String()
	if len(label) > maxLocalPart {
		label = label[:maxLocalPart]
	}
	if label = strings.Trim(label, "-"); label == "" {
		return "user"
	}
	return label
}

// EnsureHome returns the user's home workspace once it is ready, and makes it first if
// there is none. Its annotation kcp.io/path carries its path. The error wraps ErrNoHome
// for identities that are no people; otherwise it waits until ctx ends.
func (h *Home) EnsureHome(ctx context.Context, u user.Info) (*tenancyv1alpha1.Workspace, error) {
	if !isPerson(u) {
		return nil, fmt.Errorf("user %q: %w", u.GetName(), ErrNoHome)
	}
	parent, err := h.index.Resolve(ctx, UsersPath)
	if err != nil {
		return nil, fmt.Errorf("cannot find where homes stand: %w", err)
	}
	for _, length := range []int{hashLength, longHashLength} {
		ws, err := h.ensure(ctx, logicalcluster.Key{Cluster: parent, Name: homeName(u.GetName(), length)}, u)
		if err != nil {
			return nil, fmt.Errorf("home workspace of user %q: %w", u.GetName(), err)
		}
		owner, err := OwnerOf(ws)
		if err != nil {
			return nil, err
		}
		if owner.Username == u.GetName() {
			return ws, nil
		}
	}
	return nil, fmt.Errorf("home workspace of user %q: its name is taken by another user", u.GetName())
}

// isPerson refuses anonymous users, service accounts and components.
func isPerson(u user.Info) bool {
	return u.GetName() != "" && !strings.HasPrefix(u.GetName(), "system:")
}

// ensure brings the workspace under key to Ready and returns it.
func (h *Home) ensure(ctx context.Context, key logicalcluster.Key, u user.Info) (*tenancyv1alpha1.Workspace, error) {
	created := false
	for {
		// Registered before looking, so that no change in between is missed.
		changed, cancel := h.wait(key)
		ws, ok := h.workspaces.Get(key.Cluster, "", key.Name)
		if ok && ws.DeletionTimestamp == nil && ws.Status.Phase == tenancyv1alpha1.WorkspacePhaseReady {
			cancel()
			return ws, nil
		}
		if !ok && !created {
			if err := h.createHome(ctx, key, u); err != nil {
				cancel()
				return nil, err
			}
			created = true
		}
		// Once it is seen, it may go and have to be made again.
		created = created && !ok
		select {
		case <-changed:
		case <-ctx.Done():
			cancel()
			return nil, fmt.Errorf("workspace %q is not ready: %w", UsersPath.Join(key.Name), context.Cause(ctx))
		}
	}
}

func (h *Home) createHome(ctx context.Context, key logicalcluster.Key, u user.Info) error {
	owner, err := EncodeOwner(u)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Creating home workspace", "workspace", UsersPath.Join(key.Name), "user", u.GetName())
	_, err = h.create(ctx, key.Cluster, &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{
			Name:        key.Name,
			Annotations: map[string]string{tenancyv1alpha1.OwnerAnnotationKey: owner},
		},
		Spec: tenancyv1alpha1.WorkspaceSpec{
			Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: tenancyv1alpha1.TypeHome},
		},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("cannot create workspace %q: %w", UsersPath.Join(key.Name), err)
	}
	return nil
}

// wait returns a channel that is closed at the next change of key. The caller calls
// cancel if it does not wait.
func (h *Home) wait(key logicalcluster.Key) (changed chan struct{}, cancel func()) {
	changed = make(chan struct{})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiters[key] = append(h.waiters[key], changed)
	return changed, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		kept := h.waiters[key][:0]
		for _, c := range h.waiters[key] {
			if c != changed {
				kept = append(kept, c)
			}
		}
		if len(kept) == 0 {
			delete(h.waiters, key)
			return
		}
		h.waiters[key] = kept
	}
}

func (h *Home) wake(key logicalcluster.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.waiters[key] {
		close(c)
	}
	delete(h.waiters, key)
}
