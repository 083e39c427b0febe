package authz

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/server/authn"
)

// Allowed asks whether a user may do something in a logical cluster, which need not be that
// of the request: the one way to ask about another one, since it knows whose identity counts
// there. It returns nil if so, a Forbidden error if not, which reads the same whether or not
// the cluster or the object exists, and any other error where nobody can tell.
//
// The user is among the attributes, which speak of a resource unless they have a Path.
func Allowed(ctx context.Context, a authorizer.UnconditionalAuthorizer, cluster logicalcluster.Name, attributes authorizer.AttributesRecord) error {
	refused := apierrors.NewForbidden(schema.GroupResource{Group: attributes.APIGroup, Resource: attributes.Resource}, attributes.Name,
		fmt.Errorf("user %q has no verb %q on it in cluster %q", attributes.User.GetName(), attributes.Verb, cluster))
	if !cluster.Valid() || !authn.ActsIn(ctx, attributes.User, cluster) {
		return refused
	}
	attributes.ResourceRequest = attributes.Path == ""
	decision, _, err := a.Authorize(logicalcluster.WithCluster(ctx, cluster), attributes)
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return fmt.Errorf("cannot authorize %q in cluster %q: %w", attributes.Verb, cluster, err)
	default:
		return refused
	}
}
