// Package crds serves custom resources in logical clusters.
//
// The product's own kinds are system CRDs: their definitions are part of the binary,
// have one owner, and are present in every workspace without any object in it. One
// upstream CRD handler and one watch cache per kind serve all clusters, since the storage
// below is cluster-aware.
package crds

import (
	"context"
	"fmt"
	"io/fs"
	"sort"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/13eedeaf/kcp/pkg/apis/crds"
)

// establishedAt is the time at which system CRDs count as established. It lies in the
// past: upstream's handler delays the first creation of an object within two seconds of
// it, for other servers to catch up, and there is nothing to catch up with.
var establishedAt = metav1.NewTime(time.Unix(0, 0))

// System returns the product's own CRDs, in the order of their names, as they would
// stand after a cluster had accepted them.
func System() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	files, err := fs.Glob(crds.FS, "*.yaml")
	if err != nil {
		return nil, err
	}
	out := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(files))
	for _, file := range files {
		data, err := crds.FS.ReadFile(file)
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, crd); err != nil {
			return nil, fmt.Errorf("cannot read system CRD %q: %w", file, err)
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		crd.UID = types.UID("system." + crd.Name)
		crd.ResourceVersion = "1"
		crd.Status = apiextensionsv1.CustomResourceDefinitionStatus{
			AcceptedNames:  crd.Spec.Names,
			StoredVersions: []string{crd.Spec.Versions[0].Name},
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
				{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: establishedAt},
				{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: establishedAt},
			},
		}
		out = append(out, crd)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

// staticInformer is upstream's CRD informer over a fixed set.
type staticInformer struct{ informer cache.SharedIndexInformer }

var _ apiextensionsinformers.CustomResourceDefinitionInformer = staticInformer{}

func newStaticInformer(definitions []*apiextensionsv1.CustomResourceDefinition) staticInformer {
	return staticInformer{cache.NewSharedIndexInformer(
		staticListWatch{definitions},
		&apiextensionsv1.CustomResourceDefinition{},
		0,
		cache.Indexers{},
	)}
}

func (s staticInformer) Informer() cache.SharedIndexInformer { return s.informer }

func (s staticInformer) Lister() apiextensionslisters.CustomResourceDefinitionLister {
	return apiextensionslisters.NewCustomResourceDefinitionLister(s.informer.GetIndexer())
}

func (s staticInformer) run(ctx context.Context) { s.informer.RunWithContext(ctx) }

type staticListWatch struct {
	definitions []*apiextensionsv1.CustomResourceDefinition
}

func (s staticListWatch) List(metav1.ListOptions) (runtime.Object, error) {
	list := &apiextensionsv1.CustomResourceDefinitionList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for _, crd := range s.definitions {
		list.Items = append(list.Items, *crd.DeepCopy())
	}
	return list, nil
}

func (s staticListWatch) Watch(metav1.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

func (staticListWatch) IsWatchListSemanticsUnSupported() bool { return true }
