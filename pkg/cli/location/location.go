// Package location holds the use case around Locations: what a tenant sees in the place
// of physical clusters.
package location

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/nearest"
	"github.com/13eedeaf/kcp/pkg/cli/printer"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/cli/session"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// List is the use case of "locations".
type List struct {
	Console *console.Console
	Session *session.Session
	Printer printer.Printer
	Now     func() time.Time
}

// Do lists the Locations that the current workspace has and inherits: those with the
// given names, or all.
func (l *List) Do(ctx context.Context, names []string) error {
	client, err := l.Session.EffectiveLocations(l.Session.Path)
	if err != nil {
		return err
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if err := l.choose(list, names); err != nil {
		return err
	}
	if len(list.Items) == 0 && !l.Printer.Format.Structured() {
		l.Console.Note("No locations can be used in %q.", l.Session.Path)
	}
	type location = *schedulingv1alpha1.Location
	count := func(n *int32) string {
		if n == nil {
			return ""
		}
		return strconv.Itoa(int(*n))
	}
	return printer.List(l.Printer, list, printer.Pointers(list.Items), []printer.Column[location]{
		{Header: "NAME", Value: func(o location) string { return o.Name }},
		{Header: "WORKSPACE", Value: func(o location) string { return o.Annotations[logicalcluster.PathAnnotationKey] }},
		{Header: "AVAILABLE", Value: func(o location) string { return count(o.Status.AvailableInstances) }},
		{Header: "INSTANCES", Value: func(o location) string { return count(o.Status.Instances) }},
		{Header: "DESCRIPTION", Value: func(o location) string { return o.Spec.Description }},
		{Header: "AGE", Value: func(o location) string { return duration.HumanDuration(l.Now().Sub(o.CreationTimestamp.Time)) }},
		{Header: "LABELS", Wide: true, Value: func(o location) string { return labels.FormatLabels(o.Labels) }},
	})
}

// choose keeps the named Locations. Several workspaces above may each have one of a
// name.
func (l *List) choose(list *schedulingv1alpha1.LocationList, names []string) error {
	if len(names) == 0 {
		return nil
	}
	there := make([]string, 0, len(list.Items))
	for i := range list.Items {
		there = append(there, list.Items[i].Name)
	}
	for _, name := range names {
		if slices.Contains(there, name) {
			continue
		}
		p := problem.New("workspace %q has no location %q and inherits none", l.Session.Path, name)
		if near := nearest.To(name, there); near != "" {
			return p.Hint("did you mean %q? kubectl kcp locations %s", near, near)
		}
		if len(there) > 0 {
			return p.Hint("there are %s: kubectl kcp locations", strings.Join(there[:min(len(there), 5)], ", "))
		}
		return p.Hint("see which there are: kubectl kcp locations")
	}
	list.Items = slices.DeleteFunc(list.Items, func(o schedulingv1alpha1.Location) bool { return !slices.Contains(names, o.Name) })
	return nil
}
