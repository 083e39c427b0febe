package native

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/core"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// named gives a store the short names and categories that kubectl users know.
type named struct {
	*genericregistry.Store
	shortNames, categories []string
}

var (
	_ rest.ShortNamesProvider = named{}
	_ rest.CategoriesProvider = named{}
)

func (n named) ShortNames() []string { return n.shortNames }
func (n named) Categories() []string { return n.categories }

// statusREST is a status subresource over a store whose strategy keeps to the status.
type statusREST struct{ store *genericregistry.Store }

var (
	_ rest.Getter              = &statusREST{}
	_ rest.Updater             = &statusREST{}
	_ rest.Patcher             = &statusREST{}
	_ rest.ResetFieldsStrategy = &statusREST{}
)

func (r *statusREST) New() runtime.Object { return r.store.New() }

// Destroy leaves the store to its resource.
func (r *statusREST) Destroy() {}

func (r *statusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

func (r *statusREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	// A status update never creates.
	return r.store.Update(ctx, name, info, create, update, false, options)
}

func (r *statusREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

func (r *statusREST) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, object, options)
}

// normalizeNewService keeps clusterIP and clusterIPs in step, as upstream's allocator
// does while it allocates. A workspace allocates nothing.
func normalizeNewService(_ context.Context, obj runtime.Object, _ *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
	svc := obj.(*core.Service)
	if svc.Spec.ClusterIP != "" && len(svc.Spec.ClusterIPs) == 0 {
		svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
	}
	return finished, nil
}

// normalizeChangedService carries over what a client that does not know clusterIPs left
// out, and follows a change of clusterIP.
func normalizeChangedService(_ context.Context, obj, old runtime.Object, _ *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
	svc, was := obj.(*core.Service), old.(*core.Service)
	switch {
	case svc.Spec.Type == core.ServiceTypeExternalName && was.Spec.Type != core.ServiceTypeExternalName:
		if svc.Spec.ClusterIP == was.Spec.ClusterIP {
			svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "", nil
		}
	case svc.Spec.ClusterIP != was.Spec.ClusterIP && sameIPs(svc.Spec.ClusterIPs, was.Spec.ClusterIPs):
		svc.Spec.ClusterIPs = nil
		if svc.Spec.ClusterIP != "" {
			svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
		}
	case svc.Spec.ClusterIP != "" && len(svc.Spec.ClusterIPs) == 0:
		svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
	}
	return finished, nil
}

func sameIPs(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func finished(context.Context, bool) {}
