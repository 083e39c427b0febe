package workspaces

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// HomePattern is where HomeHandler is served.
const HomePattern = "/services/home"

// homeTimeout is how long a request waits for a home to become ready.
const homeTimeout = 30 * time.Second

var workspacesResource = schema.GroupResource{Group: tenancyv1alpha1.GroupVersion.Group, Resource: "workspaces"}

// HomeHandler answers GET /services/home with the caller's home workspace, which it
// makes at first use. It is called with an authenticated user in the request's context
// and asks for no other permission: the home is the caller's own.
func (h *Home) HomeHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			respondError(w, r, apierrors.NewMethodNotSupported(workspacesResource, r.Method))
			return
		}
		u, ok := request.UserFrom(r.Context())
		if !ok {
			respondError(w, r, apierrors.NewUnauthorized("log in to use your home workspace"))
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), homeTimeout)
		defer cancel()
		ws, err := h.EnsureHome(ctx, u)
		switch {
		case errors.Is(err, ErrNoHome):
			respondError(w, r, apierrors.NewForbidden(workspacesResource, "~", err))
			return
		case errors.Is(err, context.DeadlineExceeded):
			respondError(w, r, apierrors.NewTimeoutError(err.Error(), 1))
			return
		case err != nil:
			respondError(w, r, apierrors.NewInternalError(err))
			return
		}
		ws = ws.DeepCopy()
		ws.SetGroupVersionKind(tenancyv1alpha1.GroupVersion.WithKind("Workspace"))
		metav1.SetMetaDataAnnotation(&ws.ObjectMeta, logicalcluster.PathAnnotationKey, UsersPath.Join(ws.Name).String())
		respond(w, r, http.StatusOK, ws)
	})
}

func respondError(w http.ResponseWriter, r *http.Request, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	respond(w, r, int(status.Code), &status)
}

func respond(w http.ResponseWriter, r *http.Request, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		klog.FromContext(r.Context()).V(2).Info("Cannot write the answer", "err", err)
	}
}
