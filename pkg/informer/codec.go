package informer

import (
	"fmt"
	"strings"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Codec says how objects are kept. Decode(Encode(x)) must equal x.
type Codec[T Object] interface {
	Encode(obj T) ([]byte, error)
	Decode(data []byte) (T, error)
}

// Option changes how an informer works.
type Option[T Object] func(*Informer[T])

// WithCodec makes an informer keep its objects encoded.
func WithCodec[T Object](codec Codec[T]) Option[T] {
	return func(i *Informer[T]) { i.codec = codec }
}

// encoded is an object as it is kept with a Codec.
type encoded struct {
	// name is key as a string; the parts of key point into it.
	name string
	key  logicalcluster.Key
	data []byte
}

// encoder is a store that keeps objects in another form.
type encoder interface {
	encode(obj any) (any, error)
}

func (s *sink[T]) encode(obj any) (any, error) { return (*Informer[T])(s).encode(obj) }

// encode returns the form of obj in the store; it may have it already.
func (i *Informer[T]) encode(obj any) (any, error) {
	o, ok := obj.(T)
	if !ok {
		return obj, nil
	}
	o.SetManagedFields(nil)
	if i.codec == nil {
		return o, nil
	}
	data, err := i.codec.Encode(o)
	if err != nil {
		return nil, fmt.Errorf("cannot encode %s %s: %w", i.name, logicalcluster.KeyOf(o), err)
	}
	name, err := storeKey(o)
	if err != nil {
		return nil, err
	}
	return &encoded{name: name, key: split(name, logicalcluster.KeyOf(o)), data: data}, nil
}

// split returns key with its strings cut out of name, its text, so that they cost nothing.
func split(name string, key logicalcluster.Key) logicalcluster.Key {
	cluster, rest, _ := strings.Cut(name, "|")
	return logicalcluster.Key{
		Cluster:   logicalcluster.Name(cluster),
		Namespace: rest[:len(key.Namespace)],
		Name:      rest[len(rest)-len(key.Name):],
	}
}

// decode returns the object for its form in the store.
func (i *Informer[T]) decode(stored any) (T, error) {
	e, ok := stored.(*encoded)
	if !ok {
		return stored.(T), nil
	}
	obj, err := i.codec.Decode(e.data)
	if err != nil {
		return obj, fmt.Errorf("cannot decode %s %s: %w", i.name, e.name, err)
	}
	return obj, nil
}

// keyOf returns the key of an object in its form in the store.
func keyOf(stored any) logicalcluster.Key {
	if e, ok := stored.(*encoded); ok {
		return e.key
	}
	return logicalcluster.KeyOf(stored.(Object))
}
