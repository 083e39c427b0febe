package manifest

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Removal returns what Render makes for an instance, by kind and name, in the order in
// which it is to be deleted: first the namespace, and with it the syncer, its credentials
// and all else that is namespaced; last the policy that fences it.
func Removal(instanceID string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, obj := range []runtime.Object{
		namespace(instanceID),
		clusterRoleBinding(instanceID),
		clusterRole(instanceID, nil),
		dataRole(instanceID, nil),
		policyBinding(instanceID),
		policy(instanceID),
	} {
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, fmt.Errorf("syncer manifest: cannot convert %T: %w", obj, err)
		}
		full := unstructured.Unstructured{Object: u}
		ref := &unstructured.Unstructured{}
		ref.SetAPIVersion(full.GetAPIVersion())
		ref.SetKind(full.GetKind())
		ref.SetName(full.GetName())
		out = append(out, ref)
	}
	return out, nil
}

// RenderRemoval returns Removal as YAML documents for "kubectl delete -f".
func RenderRemoval(instanceID string) ([]byte, error) {
	objects, err := Removal(instanceID)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, obj := range objects {
		doc, err := marshal(obj)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(doc)
	}
	return out.Bytes(), nil
}
