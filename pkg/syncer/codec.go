package syncer

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// jsonCodec keeps objects as JSON: a syncer holds all objects of its namespaces and looks
// at few of them at a time, and as maps they take ten times as much.
type jsonCodec struct{}

func (jsonCodec) Encode(obj *unstructured.Unstructured) ([]byte, error) {
	return json.Marshal(obj.Object)
}

func (jsonCodec) Decode(data []byte) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	return obj, utiljson.Unmarshal(data, &obj.Object)
}
