// Package apierror answers requests with an error, as the Status object that Kubernetes
// clients understand, where no API machinery of upstream does it.
package apierror

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

var v1 = schema.GroupVersion{Version: "v1"}

// codecs writes Status objects.
var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, v1)
	return serializer.NewCodecFactory(scheme)
}()

// Write answers with err. An error that is no APIStatus becomes a 500.
func Write(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, codecs, v1, w, r)
}
