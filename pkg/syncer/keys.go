package syncer

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
)

// identity says whose syncer this is.
type identity struct {
	name       string
	uid        types.UID
	cluster    logicalcluster.Name
	targetKey  string
	instanceID string
	// podSecurity is the Pod Security Standard that namespaces of tenants enforce.
	podSecurity string
	// account is the syncer's own identity in the physical cluster, which it grants
	// access to Secrets and ConfigMaps of its namespaces.
	account types.NamespacedName
}

// namespace returns the name of the downstream namespace of key.
func (i identity) namespace(key namespaceKey) string {
	return names.Namespace(key.Cluster, key.Namespace, i.uid)
}

// owner returns whose copy a downstream namespace is; false when label, annotation and
// name do not agree.
func (i identity) owner(ns *unstructured.Unstructured) (namespaceKey, bool) {
	if ns.GetLabels()[names.SyncerLabel] != i.instanceID {
		return namespaceKey{}, false
	}
	source, err := names.ParseSource(ns.GetAnnotations()[names.SourceAnnotation])
	if err != nil {
		return namespaceKey{}, false
	}
	key := namespaceKey{source.Cluster, source.Namespace}
	return key, i.namespace(key) == ns.GetName()
}

// namespaceKey is a namespace of a workspace.
type namespaceKey struct {
	Cluster   logicalcluster.Name
	Namespace string
}

func (k namespaceKey) String() string { return string(k.Cluster) + "|" + k.Namespace }

// key returns the key of an object in the namespace.
func (k namespaceKey) key(name string) logicalcluster.Key {
	return logicalcluster.Key{Cluster: k.Cluster, Namespace: k.Namespace, Name: name}
}

func namespaceOf(key logicalcluster.Key) namespaceKey {
	return namespaceKey{Cluster: key.Cluster, Namespace: key.Namespace}
}

// objectKey is an object that is, or was, to be copied downstream.
type objectKey struct {
	namespaceKey
	Resource resources.Resource
	Name     string
}

func (k objectKey) String() string {
	return k.Resource.String() + " " + k.key(k.Name).String()
}

// mirrorKey is an object of the physical cluster that is, or was, to be shown in the
// workspace. Name is its downstream name.
type mirrorKey struct {
	namespaceKey
	Resource resources.Resource
	Name     string
}

func (k mirrorKey) String() string {
	return k.Resource.String() + " " + k.key(k.Name).String()
}
