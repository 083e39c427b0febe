package storage

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// etcdKey returns the key in etcd of one object.
func (s *clusterStorage) etcdKey(cluster logicalcluster.Name, namespace, name string) string {
	segments := []string{s.etcdPrefix, string(cluster), namespace, name}
	if namespace == "" {
		segments = []string{s.etcdPrefix, string(cluster), name}
	}
	return strings.Join(segments, "/")
}

// encode returns obj, which it changes, as upstream's storage would store it under key.
func (s *clusterStorage) encode(ctx context.Context, key string, cluster logicalcluster.Name, obj runtime.Object) (string, error) {
	if err := stamp(obj, cluster); err != nil {
		return "", err
	}
	if err := s.Versioner().PrepareObjectForStorage(obj); err != nil {
		return "", fmt.Errorf("cannot prepare %q: %w", key, err)
	}
	data, err := runtime.Encode(s.codec, obj)
	if err != nil {
		return "", fmt.Errorf("cannot encode %q: %w", key, err)
	}
	if s.transformer == nil {
		return string(data), nil
	}
	if data, err = s.transformer.TransformToStorage(ctx, data, value.DefaultContext(key)); err != nil {
		return "", storage.NewInternalError(fmt.Errorf("cannot encrypt %q: %w", key, err))
	}
	return string(data), nil
}

// decode is the reverse of encode.
func (s *clusterStorage) decode(ctx context.Context, key string, data []byte) (runtime.Object, error) {
	if s.transformer != nil {
		var err error
		if data, _, err = s.transformer.TransformFromStorage(ctx, data, value.DefaultContext(key)); err != nil {
			return nil, storage.NewInternalError(fmt.Errorf("cannot decrypt %q: %w", key, err))
		}
	}
	obj, _, err := s.codec.Decode(data, nil, s.newFunc())
	if err != nil {
		return nil, fmt.Errorf("cannot decode %q: %w", key, err)
	}
	return obj, nil
}
