package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	workloadv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/workload/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/server/apierror"
)

// owners names, for each system-owned resource, who writes it; for messages.
var owners = map[schema.GroupResource]string{
	schedulingv1alpha1.GroupVersion.WithResource("assignments").GroupResource():      "the scheduler",
	workloadv1alpha1.GroupVersion.WithResource("syncreports").GroupResource():        "the syncer of the target",
	networkingv1alpha1.GroupVersion.WithResource("gatewayreports").GroupResource():   "the gateway",
	networkingv1alpha1.GroupVersion.WithResource("gatewayinstances").GroupResource(): "the gateway",
	networkingv1alpha1.GroupVersion.WithResource("hostclaims").GroupResource():       "the server",
}

var readVerbs = []string{"get", "list", "watch"}

type ownIdentityKey struct{}

// WithOwnIdentity notes which requests impersonate nobody. It stands before upstream's
// impersonation filter, which removes the headers that tell.
func WithOwnIdentity(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			// Any impersonation header begins like this.
			if strings.HasPrefix(name, "Impersonate-") {
				next.ServeHTTP(w, r)
				return
			}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), ownIdentityKey{}, true)))
	})
}

// FilterSystemOwned refuses writes to system-owned resources, and marks requests of the
// loopback identity as the server's. It stands behind authentication and RequestInfo,
// somewhere behind WithOwnIdentity, and answers 403 with a Status.
func FilterSystemOwned(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if isLoopback(r) {
			next.ServeHTTP(w, r.WithContext(WithSystemWriter(ctx, Server())))
			return
		}
		info, ok := request.RequestInfoFrom(ctx)
		if !ok {
			responsewriters.InternalError(w, r, errors.New("no RequestInfo in the request context"))
			return
		}
		if _, marked := systemWriter(ctx); marked || !info.IsResourceRequest || slices.Contains(readVerbs, info.Verb) {
			next.ServeHTTP(w, r)
			return
		}
		gr := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
		if owner, ok := owners[gr]; ok {
			apierror.Write(w, r, refusal(gr, info.Name, owner))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func refusal(gr schema.GroupResource, name, owner string) error {
	return apierrors.NewForbidden(gr, name, fmt.Errorf("objects of this kind are written by %s only; users, admins included, can read them", owner))
}

// isLoopback reports whether the server itself sent r, speaking for itself: not who
// impersonates the server, and not the server on behalf of somebody else.
func isLoopback(r *http.Request) bool {
	u, ok := request.UserFrom(r.Context())
	if !ok || u.GetName() != user.APIServerUser || !slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return false
	}
	own, _ := r.Context().Value(ownIdentityKey{}).(bool)
	return own
}
