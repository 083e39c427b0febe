package workload

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/nearest"
	"github.com/13eedeaf/kcp/pkg/cli/printer"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/cli/session"
)

// Explain is the use case of "explain": where a namespace runs, and why.
type Explain struct {
	Console *console.Console
	Session *session.Session
	Printer printer.Printer
}

// Explanation is all that is known of where a namespace runs. The parts are API objects.
type Explanation struct {
	Workspace string `json:"workspace"`
	Namespace string `json:"namespace"`
	// Placement decides for the namespace; nil when none selects it.
	Placement   *schedulingv1alpha1.Placement   `json:"placement"`
	Assignments []schedulingv1alpha1.Assignment `json:"assignments"`
	// Failures are the reports of objects that could not be synced.
	Failures []workloadv1alpha1.SyncReport `json:"failures"`
	// Gateways is what gateways say; empty without an Ingress.
	Gateways []networkingv1alpha1.GatewayReport `json:"gateways"`
}

// Do explains a namespace of the current workspace.
func (e *Explain) Do(ctx context.Context, namespace string) error {
	x, err := e.look(ctx, namespace)
	if err != nil {
		return err
	}
	switch {
	case e.Printer.Format.Structured():
		return e.Printer.Value(x)
	case e.Printer.Format.Output == "name":
		for _, a := range x.Assignments {
			e.Console.Print("assignment.%s/%s", schedulingv1alpha1.GroupVersion.Group, a.Name)
		}
		return nil
	}
	return e.print(x)
}

func (e *Explain) look(ctx context.Context, name string) (*Explanation, error) {
	namespace, err := e.namespace(ctx, name)
	if err != nil {
		return nil, err
	}
	x := &Explanation{Workspace: string(e.Session.Path), Namespace: name, Failures: []workloadv1alpha1.SyncReport{}}
	if x.Placement, err = e.placement(ctx, namespace.Labels); err != nil {
		return nil, err
	}
	assignments, err := e.Session.Assignments(e.Session.Path, name)
	if err != nil {
		return nil, err
	}
	reports, err := e.Session.SyncReports(e.Session.Path, name)
	if err != nil {
		return nil, err
	}
	gateways, err := e.Session.GatewayReports(e.Session.Path, name)
	if err != nil {
		return nil, err
	}
	assignmentList, err := assignments.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	reportList, err := reports.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	gatewayList, err := gateways.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	x.Assignments, x.Gateways = assignmentList.Items, gatewayList.Items
	for _, r := range reportList.Items {
		if !r.Report.Synced {
			x.Failures = append(x.Failures, r)
		}
	}
	slices.SortFunc(x.Failures, func(a, b workloadv1alpha1.SyncReport) int {
		return cmp.Or(cmp.Compare(a.Spec.Resource, b.Spec.Resource), cmp.Compare(a.Spec.Name, b.Spec.Name), cmp.Compare(a.Spec.Target, b.Spec.Target))
	})
	e.setKinds(x)
	return x, nil
}

// setKinds restores what typed clients drop.
func (e *Explain) setKinds(x *Explanation) {
	if x.Placement != nil {
		x.Placement.SetGroupVersionKind(schedulingv1alpha1.GroupVersion.WithKind("Placement"))
	}
	for i := range x.Assignments {
		x.Assignments[i].SetGroupVersionKind(schedulingv1alpha1.GroupVersion.WithKind("Assignment"))
	}
	for i := range x.Failures {
		x.Failures[i].SetGroupVersionKind(workloadv1alpha1.GroupVersion.WithKind("SyncReport"))
	}
	for i := range x.Gateways {
		x.Gateways[i].SetGroupVersionKind(networkingv1alpha1.GroupVersion.WithKind("GatewayReport"))
	}
}

func (e *Explain) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	client, err := e.Session.Namespaces(e.Session.Path)
	if err != nil {
		return nil, err
	}
	found, err := client.Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return found, err
	}
	p := problem.New("namespace %q not found in workspace %q", name, e.Session.Path).Because(err)
	names := []string{}
	if list, err := client.List(ctx, metav1.ListOptions{}); err == nil {
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
	}
	if near := nearest.To(name, names); near != "" {
		return nil, p.Hint("did you mean %q? kubectl kcp explain %s", near, near)
	}
	return nil, p.Hint("see which there are: kubectl get namespaces")
}

// placement returns the Placement that decides for a namespace with these labels, by the
// rule that the server has: the first by name that selects it.
func (e *Explain) placement(ctx context.Context, namespaceLabels map[string]string) (*schedulingv1alpha1.Placement, error) {
	client, err := e.Session.Placements(e.Session.Path)
	if err != nil {
		return nil, err
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var first *schedulingv1alpha1.Placement
	for i := range list.Items {
		p := &list.Items[i]
		if !p.DeletionTimestamp.IsZero() || first != nil && first.Name < p.Name {
			continue
		}
		if p.Spec.NamespaceSelector != nil {
			selector, err := metav1.LabelSelectorAsSelector(p.Spec.NamespaceSelector)
			if err != nil || !selector.Matches(labels.Set(namespaceLabels)) {
				continue
			}
		}
		first = p
	}
	return first, nil
}

func (e *Explain) print(x *Explanation) error {
	e.Console.Print("Namespace %s in %s", x.Namespace, x.Workspace)
	if x.Placement == nil {
		e.Console.Print("Placement: none selects it, so it is given no place, and keeps one that it has")
	} else {
		e.Console.Print("Placement: %s", strings.TrimSuffix(fmt.Sprintf("%s (%s): %s", x.Placement.Name, orElse(string(x.Placement.Status.Phase), "not looked at yet"), x.Placement.Status.Message), ": "))
	}
	if len(x.Assignments) == 0 {
		e.Console.Print("%s", nowhere(x.Placement))
	}
	if err := section(e, "Where it is", x.Assignments, assignmentColumns); err != nil {
		return err
	}
	if err := section(e, "What could not be synced", x.Failures, failureColumns); err != nil {
		return err
	}
	if err := section(e, "What gateways say", gatewayRows(x.Gateways), gatewayColumns); err != nil {
		return err
	}
	if x.Placement == nil {
		return nil
	}
	return section(e, "Where something new could go", x.Placement.Status.Candidates, candidateColumns)
}

// nowhere says why a namespace has no place.
func nowhere(p *schedulingv1alpha1.Placement) string {
	switch {
	case p == nil:
		return "It is nowhere."
	case p.Status.Phase == schedulingv1alpha1.PlacementPending:
		return "It is nowhere, until a location fits. Those that can be used here: kubectl kcp locations"
	}
	return "It is nowhere: a namespace is given a place when it holds something to run."
}

// section prints a table under a title, and nothing without rows.
func section[T any](e *Explain, title string, rows []T, columns []printer.Column[T]) error {
	if len(rows) == 0 {
		return nil
	}
	e.Console.Print("\n%s:", title)
	return printer.Table(e.Printer, rows, columns)
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

var assignmentColumns = []printer.Column[schedulingv1alpha1.Assignment]{
	{Header: "LOCATION", Value: func(a schedulingv1alpha1.Assignment) string { return a.Spec.Location }},
	{Header: "TARGET", Value: func(a schedulingv1alpha1.Assignment) string { return a.Spec.Target }},
	{Header: "PHASE", Value: func(a schedulingv1alpha1.Assignment) string { return string(a.Status.Phase) }},
	{Header: "WHY", Value: func(a schedulingv1alpha1.Assignment) string { return a.Spec.Reason }},
	{Header: "MESSAGE", Value: func(a schedulingv1alpha1.Assignment) string { return a.Status.Message }},
	{Header: "STATE", Wide: true, Value: func(a schedulingv1alpha1.Assignment) string { return string(a.Spec.State) }},
	{Header: "SINCE", Wide: true, Value: func(a schedulingv1alpha1.Assignment) string {
		return a.CreationTimestamp.UTC().Format(time.RFC3339)
	}},
}

var failureColumns = []printer.Column[workloadv1alpha1.SyncReport]{
	{Header: "OBJECT", Value: func(r workloadv1alpha1.SyncReport) string {
		return schema.GroupResource{Group: r.Spec.Group, Resource: r.Spec.Resource}.String() + "/" + r.Spec.Name
	}},
	{Header: "TARGET", Value: func(r workloadv1alpha1.SyncReport) string { return r.Spec.Target }},
	{Header: "REASON", Value: func(r workloadv1alpha1.SyncReport) string { return r.Report.Reason }},
	{Header: "MESSAGE", Value: func(r workloadv1alpha1.SyncReport) string { return r.Report.Message }},
}

var candidateColumns = []printer.Column[schedulingv1alpha1.PlacementCandidate]{
	{Header: "LOCATION", Value: func(c schedulingv1alpha1.PlacementCandidate) string { return c.Location }},
	{Header: "TARGET", Value: func(c schedulingv1alpha1.PlacementCandidate) string { return c.Target }},
	{Header: "ELIGIBLE", Value: func(c schedulingv1alpha1.PlacementCandidate) string { return strconv.FormatBool(c.Eligible) }},
	{Header: "WHY", Value: func(c schedulingv1alpha1.PlacementCandidate) string { return c.Reason }},
	{Header: "WORKSPACE", Wide: true, Value: func(c schedulingv1alpha1.PlacementCandidate) string { return c.LocationPath }},
}

// gatewayRow is what one gateway says of one target.
type gatewayRow struct {
	gateway string
	networkingv1alpha1.GatewayTargetReport
}

func gatewayRows(reports []networkingv1alpha1.GatewayReport) []gatewayRow {
	var out []gatewayRow
	for _, r := range reports {
		for _, t := range r.Spec.Targets {
			out = append(out, gatewayRow{r.Name, t})
		}
	}
	return out
}

var gatewayColumns = []printer.Column[gatewayRow]{
	{Header: "GATEWAY", Value: func(r gatewayRow) string { return r.gateway }},
	{Header: "TARGET", Value: func(r gatewayRow) string { return r.Target }},
	{Header: "SENDS", Value: func(r gatewayRow) string { return strconv.FormatBool(r.Accepting) }},
	{Header: "HEALTHY", Value: func(r gatewayRow) string { return fmt.Sprintf("%d/%d", r.HealthyBackends, r.Backends) }},
	{Header: "IN FLIGHT", Value: func(r gatewayRow) string { return strconv.FormatInt(r.InFlight, 10) }},
}
