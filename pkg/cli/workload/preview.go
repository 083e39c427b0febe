package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/printer"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/cli/session"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Preview is the use case of "drain --dry-run".
type Preview struct {
	Console *console.Console
	Session *session.Session
	Printer printer.Printer
}

// Do shows what a drain would move where, and what would stay and why. It is an error if
// something would stay. Nothing is changed.
func (p *Preview) Do(ctx context.Context, name string, force bool) error {
	namespaces, err := p.ask(ctx, name, force)
	if err != nil {
		return err
	}
	if err := p.print(name, namespaces); err != nil {
		return err
	}
	stays, ends := 0, 0
	for _, n := range namespaces {
		if n.Stays() {
			stays++
		}
		if n.Result == workloadv1alpha1.DrainEnds {
			ends++
		}
	}
	if ends > 0 {
		p.Console.Warn("%d of %d namespaces on %s would be removed without a replacement", ends, len(namespaces), name)
	}
	if stays > 0 {
		return problem.New("a drain of %s would be blocked: %d of %d namespaces cannot move", name, stays, len(namespaces)).
			Hint("make room elsewhere, or see what forcing would do: kubectl kcp drain %s --dry-run --force", name)
	}
	return nil
}

// ask gets the server's answer: tenants' workspaces are closed to whoever drains.
func (p *Preview) ask(ctx context.Context, name string, force bool) ([]workloadv1alpha1.DrainPreview, error) {
	client, err := p.Session.SyncTargets(p.Session.Path)
	if err != nil {
		return nil, err
	}
	target, err := getTarget(ctx, p.Session, client, name)
	if err != nil {
		return nil, err
	}
	rest, err := p.Session.REST("", workloadv1alpha1.GroupVersion)
	if err != nil {
		return nil, err
	}
	request := rest.Get().AbsPath("/services/drain", url.PathEscape(string(logicalcluster.From(target))), url.PathEscape(name))
	if force {
		request = request.Param("force", "true")
	}
	data, err := request.Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	namespaces := []workloadv1alpha1.DrainPreview{}
	if err := json.Unmarshal(data, &namespaces); err != nil {
		return nil, problem.New("the server's answer is no preview of a drain").Hint("see its version: kubectl kcp version").Because(err)
	}
	return namespaces, nil
}

func (p *Preview) print(name string, namespaces []workloadv1alpha1.DrainPreview) error {
	type row = workloadv1alpha1.DrainPreview
	switch {
	case p.Printer.Format.Structured():
		return p.Printer.Value(namespaces)
	case p.Printer.Format.Output == "name":
		for _, n := range namespaces {
			p.Console.Print("%s/%s", n.Workspace, n.Namespace)
		}
		return nil
	case len(namespaces) == 0:
		p.Console.Note("Nothing runs on %s: a drain would end at once.", name)
		return nil
	}
	return printer.Table(p.Printer, namespaces, []printer.Column[row]{
		{Header: "WORKSPACE", Value: func(n row) string { return n.Workspace }},
		{Header: "NAMESPACE", Value: func(n row) string { return n.Namespace }},
		{Header: "RESULT", Value: func(n row) string { return string(n.Result) }},
		{Header: "TO", Value: func(n row) string {
			if n.To == nil {
				return ""
			}
			return fmt.Sprintf("%s (%s)", n.To.Target, n.To.Location)
		}},
		{Header: "WHY", Value: func(n row) string { return n.Message }},
	})
}
