// Package printer writes lists and objects to stdout in the formats that kubectl users
// know: table, wide, json, yaml, name. JSON and YAML are the API objects.
package printer

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Formats are the values of -o.
var Formats = []string{"table", "wide", "json", "yaml", "name"}

// Format says how to print.
type Format struct {
	// Output is one of Formats, which the caller has checked; empty means table.
	Output string
	// NoHeaders leaves out a table's first line.
	NoHeaders bool
}

// Structured reports whether the output is for programs.
func (f Format) Structured() bool { return f.Output == "json" || f.Output == "yaml" }

// Column of a table. Wide ones appear with -o wide only.
type Column[T any] struct {
	Header string
	Wide   bool
	Value  func(T) string
}

// Printer prints objects of the kinds in a scheme.
type Printer struct {
	Out    io.Writer
	Scheme *runtime.Scheme
	Format Format
}

// Value prints data that is no API object, as JSON or YAML.
func (p Printer) Value(v any) error {
	data, err := json.MarshalIndent(v, "", "    ")
	if err != nil {
		return fmt.Errorf("cannot encode the output: %w", err)
	}
	if p.Format.Output == "yaml" {
		if data, err = yaml.JSONToYAML(data); err != nil {
			return fmt.Errorf("cannot encode the output: %w", err)
		}
		return p.write(data)
	}
	return p.write(append(data, '\n'))
}

func (p Printer) write(data []byte) error {
	_, err := p.Out.Write(data)
	return err
}

// Object prints one object as JSON, YAML or name.
func (p Printer) Object(obj runtime.Object) error {
	if err := p.setKind(obj); err != nil {
		return err
	}
	if p.Format.Output == "name" {
		return p.name(obj)
	}
	return p.Value(obj)
}

// name prints resource.group/name as kubectl does; every kind here has a regular
// plural and its singular is the kind in lower case.
func (p Printer) name(obj runtime.Object) error {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("cannot print a name: %w", err)
	}
	gvk := obj.GetObjectKind().GroupVersionKind()
	resource := strings.ToLower(gvk.Kind)
	if gvk.Group != "" {
		resource += "." + gvk.Group
	}
	return p.write([]byte(resource + "/" + accessor.GetName() + "\n"))
}

// setKind restores apiVersion and kind, which typed clients drop.
func (p Printer) setKind(obj runtime.Object) error {
	kinds, _, err := p.Scheme.ObjectKinds(obj)
	if err != nil {
		return fmt.Errorf("cannot print an object of an unknown kind: %w", err)
	}
	obj.GetObjectKind().SetGroupVersionKind(kinds[0])
	return nil
}

// List prints a list and its items. none is what is noted when there are none.
func List[T runtime.Object](p Printer, list runtime.Object, items []T, columns []Column[T]) error {
	for _, item := range items {
		if err := p.setKind(item); err != nil {
			return err
		}
	}
	switch p.Format.Output {
	case "json", "yaml":
		if err := p.setKind(list); err != nil {
			return err
		}
		return p.Value(list)
	case "name":
		for _, item := range items {
			if err := p.name(item); err != nil {
				return err
			}
		}
		return nil
	}
	return Table(p, items, columns)
}

// Table prints rows in columns.
func Table[T any](p Printer, items []T, columns []Column[T]) error {
	if p.Format.Output != "wide" {
		columns = slices.DeleteFunc(slices.Clone(columns), func(c Column[T]) bool { return c.Wide })
	}
	tw := tabwriter.NewWriter(p.Out, 0, 8, 3, ' ', 0)
	line := func(cells []string) { _, _ = fmt.Fprintln(tw, strings.Join(cells, "\t")) } // Flush reports the error
	if !p.Format.NoHeaders && len(items) > 0 {
		header := make([]string, 0, len(columns))
		for _, c := range columns {
			header = append(header, c.Header)
		}
		line(header)
	}
	for _, item := range items {
		row := make([]string, 0, len(columns))
		for _, c := range columns {
			row = append(row, cell(c.Value(item)))
		}
		line(row)
	}
	return tw.Flush()
}

// cell keeps a row on one line and shows what is empty.
func cell(s string) string {
	if s == "" {
		return "<none>"
	}
	return strings.NewReplacer("\n", " ", "\t", " ", "\r", " ", "\x1b", "").Replace(s)
}

// Pointers returns pointers to the items of a list.
func Pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}
