// Package workspace holds the use cases of "kubectl kcp workspace": where one is, going
// elsewhere, and creating, listing and deleting workspaces.
//
// The current workspace is the one in the server URL of the kubeconfig's current
// context. Going elsewhere rewrites the cluster entry of that context if it is ours;
// for a context that someone else wrote, a context of our own is made and becomes the
// current one.
package workspace

import (
	"context"
	"os"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	corev1alpha1 "github.com/13eedeaf/kcp/pkg/apis/core/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/kubeconfig"
	"github.com/13eedeaf/kcp/pkg/cli/nearest"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/cli/session"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Use is the use case of going to a workspace, and of saying where one is.
type Use struct {
	Console *console.Console
	Config  *kubeconfig.Store
	Session *session.Session
}

// UseInput of Use.
type UseInput struct {
	// Target is what was typed: empty, ".", "..", "-", "~", a path, or a child's name.
	Target string
	// Short prints the path alone.
	Short bool
}

// Do goes to the target, if there is one, and says where the user is.
func (u *Use) Do(ctx context.Context, in UseInput) error {
	switch in.Target {
	case "", ".":
		u.say(u.Session.Path, in.Short)
		return nil
	case "-":
		return u.back(ctx, in.Short)
	}
	path, err := u.resolve(ctx, in.Target)
	if err != nil {
		return err
	}
	return u.enter(ctx, path, in.Short)
}

func (u *Use) say(path logicalcluster.Path, short bool) {
	if short {
		u.Console.Print("%s", path)
		return
	}
	u.Console.Print("Current workspace is %q.", path)
}

// enter checks that a workspace can be entered, and makes it the current one.
func (u *Use) enter(ctx context.Context, path logicalcluster.Path, short bool) error {
	if err := u.Session.Access(ctx, path); err != nil {
		return Explain(ctx, u.Session, path, err)
	}
	if err := u.write(ctx, path); err != nil {
		return err
	}
	u.say(path, short)
	return nil
}

// resolve turns what was typed into an absolute path.
func (u *Use) resolve(ctx context.Context, target string) (logicalcluster.Path, error) {
	if home, err := os.UserHomeDir(); err == nil && target == home {
		target = "~" // the shell has put the home directory in its place
	}
	if rest, ok := cutSegment(target, "~"); ok {
		home, err := u.Session.Home(ctx)
		if err != nil || rest == "" {
			return home, err
		}
		return session.ParsePath(string(home) + ":" + rest)
	}
	path := u.Session.Path
	relative := false
	for {
		rest, up := cutSegment(target, "..")
		if !up {
			break
		}
		parent, err := u.parent(ctx, path)
		if err != nil || rest == "" {
			return parent, err
		}
		path, target, relative = parent, rest, true
	}
	absolute := strings.Contains(target, ":") || target == string(logicalcluster.Root)
	if absolute && !relative {
		return session.ParsePath(target)
	}
	return session.ParsePath(string(path) + ":" + target)
}

// cutSegment cuts a leading segment and its colon off.
func cutSegment(target, segment string) (rest string, ok bool) {
	if target == segment {
		return "", true
	}
	return strings.CutPrefix(target, segment+":")
}

func (u *Use) parent(ctx context.Context, path logicalcluster.Path) (logicalcluster.Path, error) {
	if parent, ok := path.Parent(); ok {
		return parent, nil
	}
	if path != logicalcluster.Root.Path() {
		// The context has an id in its URL; the workspace itself knows its path.
		named, err := pathOf(ctx, u.Session, path)
		if err != nil {
			return "", Explain(ctx, u.Session, path, err)
		}
		if parent, ok := named.Parent(); ok {
			return parent, nil
		}
	}
	return "", problem.New("workspace %q is at the top, there is none above it", path).Hint("see what is below it: kubectl kcp ws tree")
}

// pathOf returns the path of a workspace that may be named by its id.
func pathOf(ctx context.Context, s *session.Session, id logicalcluster.Path) (logicalcluster.Path, error) {
	clusters, err := s.LogicalClusters(id)
	if err != nil {
		return "", err
	}
	lc, err := clusters.Get(ctx, corev1alpha1.LogicalClusterName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return logicalcluster.ParsePath(lc.Annotations[logicalcluster.PathAnnotationKey])
}

// write makes a workspace the current one and remembers the one before it.
func (u *Use) write(ctx context.Context, path logicalcluster.Path) error {
	_, err := u.Config.Modify(ctx, func(cfg *clientcmdapi.Config) error {
		server := u.Session.Base + path.RequestPath()
		name := u.Session.ContextName
		old, ok := cfg.Contexts[name]
		if !ok || cfg.Clusters[old.Cluster] == nil {
			return problem.New("context %q has gone from the kubeconfig", name).Hint("see which there are: kubectl config get-contexts")
		}
		if cfg.Clusters[old.Cluster].Server == server {
			cfg.CurrentContext = name
			return nil
		}
		remember(cfg, old)
		point(cfg, name, old, server, "")
		return nil
	})
	return err
}

// back swaps the current and the previous workspace.
func (u *Use) back(ctx context.Context, short bool) error {
	previous, ok := u.Session.Kubeconfig.Contexts[kubeconfig.PreviousName]
	if !ok {
		return problem.New("there is no previous workspace").Hint("see the workspaces there are: kubectl kcp ws tree")
	}
	base, path, err := session.Workspace(u.Session.Kubeconfig, kubeconfig.PreviousName)
	if err != nil {
		return err
	}
	current := u.Session.Kubeconfig.Contexts[u.Session.ContextName]
	same := base == u.Session.Base && previous.AuthInfo == current.AuthInfo
	if same {
		if err := u.Session.Access(ctx, path); err != nil {
			return Explain(ctx, u.Session, path, err)
		}
	}
	_, err = u.Config.Modify(ctx, func(cfg *clientcmdapi.Config) error {
		to, from := cfg.Contexts[kubeconfig.PreviousName], cfg.Contexts[u.Session.ContextName]
		if to == nil || from == nil || cfg.Clusters[to.Cluster] == nil || cfg.Clusters[from.Cluster] == nil {
			return problem.New("the previous workspace has gone from the kubeconfig").Hint("kubectl kcp ws tree")
		}
		toCluster, to := cfg.Clusters[to.Cluster].DeepCopy(), to.DeepCopy()
		remember(cfg, from)
		if same {
			point(cfg, u.Session.ContextName, from, toCluster.Server, to.Namespace)
			return nil
		}
		// It is another server's, or another user's.
		own(cfg, toCluster, to.AuthInfo, to.Namespace)
		return nil
	})
	if err != nil {
		return err
	}
	u.say(path, short)
	return nil
}

// remember copies a context under the name of the previous one.
func remember(cfg *clientcmdapi.Config, c *clientcmdapi.Context) {
	cluster := cfg.Clusters[c.Cluster].DeepCopy()
	cluster.LocationOfOrigin = ""
	cfg.Clusters[kubeconfig.PreviousName] = cluster
	cfg.Contexts[kubeconfig.PreviousName] = &clientcmdapi.Context{
		Cluster: kubeconfig.PreviousName, AuthInfo: c.AuthInfo, Namespace: c.Namespace,
	}
}

// point makes a context's cluster another workspace: the context itself if it is ours,
// else a copy of it. A namespace belongs to the workspace that is left.
func point(cfg *clientcmdapi.Config, name string, c *clientcmdapi.Context, server, namespace string) {
	cluster := cfg.Clusters[c.Cluster].DeepCopy()
	cluster.Server = server
	if !kubeconfig.OwnContext(cfg, name) {
		own(cfg, cluster, c.AuthInfo, namespace)
		return
	}
	cfg.Clusters[c.Cluster] = cluster
	c.Namespace = namespace
	cfg.CurrentContext = name
}

// own writes the context that stands in for one that is not ours.
func own(cfg *clientcmdapi.Config, cluster *clientcmdapi.Cluster, user, namespace string) {
	cluster.LocationOfOrigin = ""
	cfg.Clusters[kubeconfig.CurrentName] = cluster
	cfg.Contexts[kubeconfig.CurrentName] = &clientcmdapi.Context{
		Cluster: kubeconfig.CurrentName, AuthInfo: user, Namespace: namespace,
	}
	cfg.CurrentContext = kubeconfig.CurrentName
}

// Explain says why a workspace cannot be used, with the name nearest to it.
func Explain(ctx context.Context, s *session.Session, path logicalcluster.Path, err error) error {
	if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return err
	}
	// The server does not tell strangers what exists; who may list the parent sees it.
	siblings, listed := siblingsOf(ctx, s, path)
	if apierrors.IsForbidden(err) && (!listed || slices.Contains(siblings, path.Base())) {
		return problem.New("you may not enter workspace %q, or it does not exist", path).
			Hint("ask one of its admins for verb \"access\" on \"/\"; go home: kubectl kcp ws use '~'").Because(err)
	}
	p := problem.New("workspace %q not found", path).Because(err)
	if name := nearest.To(path.Base(), siblings); name != "" {
		parent, _ := path.Parent() // it has one: it has siblings
		return p.Hint("did you mean %q? kubectl kcp ws use %s", parent.Join(name), parent.Join(name))
	}
	return p.Hint("see the workspaces there are: kubectl kcp ws tree")
}

// siblingsOf returns the names of the workspaces beside one, if they can be listed.
func siblingsOf(ctx context.Context, s *session.Session, path logicalcluster.Path) ([]string, bool) {
	parent, ok := path.Parent()
	if !ok {
		return nil, false
	}
	children, err := s.Workspaces(parent)
	if err != nil {
		return nil, false
	}
	list, err := children.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, false
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, true
}
