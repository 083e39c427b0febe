package native

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/kubernetes/pkg/apis/apps"
	replicasetstore "k8s.io/kubernetes/pkg/registry/apps/replicaset/storage"

	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
)

// appsProvider is upstream's group apps, with mirrored replica sets that nobody scales.
type appsProvider struct{ Provider }

func (p appsProvider) NewRESTStorage(source serverstorage.APIResourceConfigSource, opts generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info, err := p.Provider.NewRESTStorage(source, opts)
	if err != nil {
		return info, err
	}
	v1 := info.VersionedResourcesStorageMap["v1"]
	sets, ok := v1["replicasets"].(rest.Getter)
	scale, isScale := v1["replicasets/scale"].(*replicasetstore.ScaleREST)
	if !ok || !isScale {
		return info, fmt.Errorf("the storage of replicasets is a %T, that of their scale a %T", v1["replicasets"], v1["replicasets/scale"])
	}
	v1["replicasets/scale"] = replicaSetScale{ScaleREST: scale, sets: sets}
	return info, nil
}

// replicaSetScale is the scale of replica sets. Admission sees of a scale no labels, so
// mirrored ones are told here.
type replicaSetScale struct {
	*replicasetstore.ScaleREST
	sets rest.Getter
}

// Update implements rest.Updater.
func (r replicaSetScale) Update(ctx context.Context, name string, obj rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	set, err := r.sets.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, false, err
	}
	accessor, err := meta.Accessor(set)
	if err != nil {
		return nil, false, fmt.Errorf("cannot read the labels of a %T: %w", set, err)
	}
	if _, mirrored := accessor.GetLabels()[workloadv1alpha1.TargetLabelKey]; mirrored {
		return nil, false, apierrors.NewForbidden(apps.Resource("replicasets"), name, errors.New("it mirrors one in a physical cluster; scale the deployment that it belongs to"))
	}
	return r.ScaleREST.Update(ctx, name, obj, create, update, forceAllowCreate, options)
}
