package workspace

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/nearest"
	"github.com/13eedeaf/kcp/pkg/cli/printer"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/cli/session"
)

const (
	// poll is how often a workspace's phase is read while waiting for it.
	poll = 200 * time.Millisecond
	// enterTimeout is how long a ready workspace may take until it can be entered.
	enterTimeout = 5 * time.Second
)

// Create is the use case of "workspace create".
type Create struct {
	Console *console.Console
	Session *session.Session
	Printer printer.Printer
	Clock   clock.WithTicker
	// Use is what --use does.
	Use *Use
}

// CreateInput of Create.
type CreateInput struct {
	Name string
	// Type is a WorkspaceType's name, or path:name; empty leaves it to the server.
	Type string
	// Enter makes the new workspace the current one.
	Enter bool
	// Wait until it is ready; Enter implies it.
	Wait    bool
	Timeout time.Duration
	// IgnoreExisting takes a workspace that is there already.
	IgnoreExisting bool
}

// Do creates a child of the current workspace.
func (c *Create) Do(ctx context.Context, in CreateInput) error {
	path, err := session.ParsePath(string(c.Session.Path) + ":" + in.Name)
	if err != nil {
		return err
	}
	if path.Base() != in.Name {
		return problem.Usage("workspace name %q is a path; name the child alone", in.Name).
			Hint("go to its parent first, then: kubectl kcp ws create %s", path.Base())
	}
	client, err := c.Session.Workspaces(c.Session.Path)
	if err != nil {
		return err
	}
	ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: in.Name}}
	if in.Type != "" {
		typ, err := session.ParsePath(in.Type)
		if err != nil {
			return err
		}
		ws.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Name: typ.Base()}
		if parent, ok := typ.Parent(); ok {
			ws.Spec.Type.Path = string(parent)
		}
	}
	made, err := client.Create(ctx, ws, metav1.CreateOptions{})
	existed := apierrors.IsAlreadyExists(err)
	switch {
	case existed && in.IgnoreExisting:
		made, err = client.Get(ctx, in.Name, metav1.GetOptions{})
	case existed:
		return problem.New("workspace %q already exists", path).Hint("kubectl kcp ws use %s", path).Because(err)
	case apierrors.IsNotFound(err):
		return Explain(ctx, c.Session, c.Session.Path, err)
	case apierrors.IsForbidden(err) && in.Type != "":
		return problem.New("%s", problem.Describe(err, problem.About{}).Error()).Hint("the type may be the reason; without one: kubectl kcp ws create %s", in.Name).Because(err)
	}
	if err != nil {
		return err
	}
	if in.Wait || in.Enter {
		if made, err = c.await(ctx, in, made); err != nil {
			return err
		}
	}
	switch {
	case c.Printer.Format.Output != "" && c.Printer.Format.Output != "table" && c.Printer.Format.Output != "wide":
		err = c.Printer.Object(made)
	case existed:
		c.Console.Print("Workspace %q already exists.", path)
	default:
		c.Console.Print("Workspace %q created.", path)
	}
	if err != nil || !in.Enter {
		return err
	}
	// The server may take a moment to serve a fresh workspace under its path, and to
	// know its creator's rights there; enter says what is wrong if that lasts.
	_ = wait.PollUntilContextTimeout(ctx, poll, enterTimeout, true, func(ctx context.Context) (bool, error) {
		err := c.Session.Access(ctx, path)
		return !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err), nil
	})
	return c.Use.enter(ctx, path, false)
}

// await waits until a workspace is ready.
func (c *Create) await(ctx context.Context, in CreateInput, ws *tenancyv1alpha1.Workspace) (*tenancyv1alpha1.Workspace, error) {
	client, err := c.Session.Workspaces(c.Session.Path)
	if err != nil {
		return nil, err
	}
	progress := c.Console.Progress(c.Clock)
	defer progress.Done()
	err = wait.PollUntilContextTimeout(ctx, poll, in.Timeout, true, func(ctx context.Context) (bool, error) {
		got, err := client.Get(ctx, in.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		ws = got
		if ws.Status.Phase == tenancyv1alpha1.WorkspacePhaseReady {
			return true, nil
		}
		if ws.Status.Phase != "" {
			progress.Show("Workspace %q is %s%s.", in.Name, ws.Status.Phase, unmet(ws.Status.Conditions))
		}
		return false, nil
	})
	if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return ws, err
	}
	return nil, problem.New("workspace %q is not ready after %s: its phase is %q%s", in.Name, in.Timeout, ws.Status.Phase, unmet(ws.Status.Conditions)).
		Hint("see what it waits for: kubectl get workspace %s -o yaml", in.Name).Because(err)
}

// unmet names the first condition that is not true.
func unmet(conditions []metav1.Condition) string {
	for _, c := range conditions {
		if c.Status != metav1.ConditionTrue {
			return ", " + c.Type + " is " + string(c.Status) + ": " + c.Message
		}
	}
	return ""
}

// Delete is the use case of "workspace delete".
type Delete struct {
	Console *console.Console
	Session *session.Session
	Clock   clock.WithTicker
}

// DeleteInput of Delete.
type DeleteInput struct {
	Name string
	// Yes answers the question.
	Yes bool
	// Wait until it is gone.
	Wait    bool
	Timeout time.Duration
}

// Do deletes a child of the current workspace, with all that is in it.
func (d *Delete) Do(ctx context.Context, in DeleteInput) error {
	path, err := session.ParsePath(string(d.Session.Path) + ":" + in.Name)
	if err != nil {
		return err
	}
	if path.Base() != in.Name {
		return problem.Usage("workspace name %q is a path; name a child of %q", in.Name, d.Session.Path).
			Hint("go to its parent first, then: kubectl kcp ws delete %s", path.Base())
	}
	client, err := d.Session.Workspaces(d.Session.Path)
	if err != nil {
		return err
	}
	ws, err := client.Get(ctx, in.Name, metav1.GetOptions{})
	if err != nil {
		return explainChild(ctx, d.Session, in.Name, err)
	}
	if !in.Yes {
		if err := d.Console.Confirm(ctx, "Delete workspace \""+string(path)+"\" and everything in it?", "kubectl kcp ws delete "+in.Name+" --yes"); err != nil {
			return err
		}
	}
	// The UID keeps a workspace recreated meanwhile from being taken for this one.
	err = client.Delete(ctx, in.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(ws.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if !in.Wait {
		d.Console.Print("Workspace %q is being deleted.", path)
		return nil
	}
	progress := d.Console.Progress(d.Clock)
	err = wait.PollUntilContextTimeout(ctx, poll, in.Timeout, true, func(ctx context.Context) (bool, error) {
		got, err := client.Get(ctx, in.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || (err == nil && got.UID != ws.UID) {
			return true, nil
		}
		if err == nil {
			ws = got
			progress.Show("Workspace %q is %s%s.", in.Name, phaseOf(ws), unmet(ws.Status.Conditions))
		}
		return false, err
	})
	progress.Done()
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return problem.New("workspace %q is still there after %s: its phase is %q%s", path, in.Timeout, ws.Status.Phase, unmet(ws.Status.Conditions)).
			Hint("see what holds it: kubectl get workspace %s -o yaml", in.Name).Because(err)
	}
	if err != nil {
		return err
	}
	d.Console.Print("Workspace %q deleted.", path)
	return nil
}

// explainChild says why a child of the current workspace cannot be used.
func explainChild(ctx context.Context, s *session.Session, name string, err error) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	path := s.Path.Join(name)
	p := problem.New("workspace %q not found", path).Because(err)
	siblings, _ := siblingsOf(ctx, s, path)
	if near := nearest.To(name, siblings); near != "" {
		return p.Hint("did you mean %q? kubectl kcp ws list", near)
	}
	return p.Hint("see which there are: kubectl kcp ws list")
}
