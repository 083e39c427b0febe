// Package kinds refuses objects of the product's own kinds that their CRDs let pass and
// the server could not work with.
//
// A schema cannot say everything: that a duration parses, a quantity is none too large, a
// label selector has a known operator. The server reads these kinds as Go types, all
// clusters' objects in one list. One object that does not decode would end that list, and
// with it the work for every tenant, so nothing of the kind may be stored.
package kinds

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	kjson "sigs.k8s.io/json"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
)

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	scheme *runtime.Scheme
}

var _ admission.ValidationInterface = &Plugin{}

// New returns the plugin. The scheme holds the Go types of the kinds to look at.
func New(scheme *runtime.Scheme) *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update), scheme: scheme}
}

// Validate refuses with an Invalid error that names each field.
func (p *Plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	u, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok || !p.scheme.Recognizes(a.GetKind()) {
		return nil
	}
	decode := func(object any) (runtime.Object, error) {
		into, err := p.scheme.New(a.GetKind())
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		// As clients decode it.
		return into, kjson.UnmarshalCaseSensitivePreserveInts(data, into)
	}
	obj, err := decode(u.Object)
	if err != nil {
		return apierrors.NewInvalid(a.GetKind().GroupKind(), u.GetName(), badFields(u.Object, err, func(part any) error {
			_, err := decode(part)
			return err
		}))
	}
	if errs := validate(obj); len(errs) > 0 {
		return apierrors.NewInvalid(a.GetKind().GroupKind(), u.GetName(), errs)
	}
	return nil
}

// badFields finds the fields that make an object undecodable: those with which alone it
// is undecodable too. whole is the error of the whole object.
func badFields(object map[string]any, whole error, decode func(any) error) field.ErrorList {
	var errs field.ErrorList
	var walk func(value any, wrap func(any) any, path *field.Path)
	walk = func(value any, wrap func(any) any, path *field.Path) {
		switch v := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				walk(v[key], func(inner any) any { return wrap(map[string]any{key: inner}) }, path.Child(key))
			}
		case []any:
			for i, item := range v {
				walk(item, func(inner any) any { return wrap([]any{inner}) }, path.Index(i))
			}
		default:
			if err := decode(wrap(v)); err != nil {
				errs = append(errs, field.Invalid(path, v, err.Error()))
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		walk(object[key], func(inner any) any { return map[string]any{key: inner} }, field.NewPath(key))
	}
	if len(errs) == 0 {
		errs = append(errs, field.Invalid(field.NewPath(""), "", fmt.Sprintf("it cannot be decoded: %v", whole)))
	}
	return errs
}

// validate checks what decodes and would still not work.
func validate(obj runtime.Object) field.ErrorList {
	spec := field.NewPath("spec")
	switch o := obj.(type) {
	case *schedulingv1alpha1.Location:
		return selector(o.Spec.InstanceSelector, spec.Child("instanceSelector"))
	case *schedulingv1alpha1.Placement:
		errs := selector(o.Spec.NamespaceSelector, spec.Child("namespaceSelector"))
		for i := range o.Spec.LocationSelectors {
			errs = append(errs, selector(&o.Spec.LocationSelectors[i], spec.Child("locationSelectors").Index(i))...)
		}
		if d := o.Spec.DrainDeadline; d != nil && d.Duration < 0 {
			errs = append(errs, field.Invalid(spec.Child("drainDeadline"), d.Duration.String(), "must not be negative"))
		}
		return errs
	default:
		return nil
	}
}

var operators = []metav1.LabelSelectorOperator{
	metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
}

// selector is upstream's validation, which does not say what operators there are.
func selector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
	for i, err := range errs {
		if operator, ok := err.BadValue.(metav1.LabelSelectorOperator); ok && strings.HasSuffix(err.Field, ".operator") {
			errs[i] = &field.Error{Type: field.ErrorTypeNotSupported, Field: err.Field, BadValue: operator, Detail: fmt.Sprintf("supported values: %q", operators)}
		}
	}
	return errs
}
