package admission

import (
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
)

// PluginName is the name under which Register adds the plugin.
const PluginName = "SystemOwnedObjects"

// Register adds the plugin to plugins.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return NewPlugin(), nil })
}

// Plugin refuses writes to system-owned objects by anyone but their owner.
type Plugin struct{ *admission.Handler }

var _ admission.ValidationInterface = &Plugin{}

// NewPlugin returns the plugin. It needs no initialization.
func NewPlugin() *Plugin {
	return &Plugin{admission.NewHandler(admission.Create, admission.Update, admission.Delete)}
}

var (
	pods           = schema.GroupResource{Resource: "pods"}
	endpointSlices = schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}
	replicaSets    = schema.GroupResource{Group: "apps", Resource: "replicasets"}
)

// Validate implements admission.ValidationInterface.
func (*Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	gr := a.GetResource().GroupResource()
	if owner, ok := owners[gr]; ok {
		if _, marked := systemWriter(ctx); !marked {
			return refusal(gr, a.GetName(), owner)
		}
		return nil
	}
	if gr != pods && gr != endpointSlices && gr != replicaSets {
		return nil
	}
	// The objects of these subresources are no pods or replica sets.
	switch a.GetSubresource() {
	case "binding":
		if w, _ := systemWriter(ctx); w.component != server {
			return admission.NewForbidden(a, errors.New("pods of a workspace run in physical clusters and are not bound to nodes here"))
		}
		return nil
	case "eviction":
		// An eviction deletes the pod, which is allowed and judged as a delete.
		return nil
	case "scale":
		// package native judges it, which has the replica set at hand.
		return nil
	}
	return validateMirrored(ctx, a)
}

// validateMirrored judges by the target label before and after the write.
func validateMirrored(ctx context.Context, a admission.Attributes) error {
	writer, marked := systemWriter(ctx)
	if !marked && a.GetOperation() == admission.Delete && a.GetResource().GroupResource() == pods {
		return nil
	}
	for _, obj := range []runtime.Object{a.GetOldObject(), a.GetObject()} {
		target, mirrored, err := targetOf(obj)
		if err != nil {
			return admission.NewForbidden(a, err)
		}
		if mirrored && !writer.mayWriteMirrorOf(target) {
			return admission.NewForbidden(a, fmt.Errorf("label %s=%q marks an object that the syncer of that target mirrors from a physical cluster; nobody else can write it", workloadv1alpha1.TargetLabelKey, target))
		}
	}
	if writer.component == syncer {
		return validateStaysMirrored(a)
	}
	return nil
}

// validateStaysMirrored keeps a syncer from writing objects that are not mirrored ones,
// before or after.
func validateStaysMirrored(a admission.Attributes) error {
	if a.GetOperation() != admission.Create {
		if _, mirrored, _ := targetOf(a.GetOldObject()); !mirrored {
			return admission.NewForbidden(a, errors.New("a syncer cannot change or delete an object that it does not mirror"))
		}
	}
	if a.GetOperation() != admission.Delete {
		if _, mirrored, _ := targetOf(a.GetObject()); !mirrored {
			return admission.NewForbidden(a, fmt.Errorf("a syncer can write objects with label %s only", workloadv1alpha1.TargetLabelKey))
		}
	}
	return nil
}

// targetOf returns the value of an object's target label.
func targetOf(obj runtime.Object) (target string, mirrored bool, err error) {
	if obj == nil {
		return "", false, nil
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return "", false, fmt.Errorf("cannot read the labels of a %T: %w", obj, err)
	}
	target, mirrored = accessor.GetLabels()[workloadv1alpha1.TargetLabelKey]
	return target, mirrored, nil
}
