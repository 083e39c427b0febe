// Package authz decides who may do what in a logical cluster.
//
// The server's own identity and system:masters may do anything. For everyone else
//
//  1. the wildcard cluster and the system cluster are closed to everyone else, save for
//     the health and version endpoints;
//  2. nobody becomes a system identity by impersonation;
//  3. a workspace is closed to whoever lacks the verb "access" on "/" in it, and to the
//     service accounts of others: the answer is the same as for a workspace that does
//     not exist;
//  4. RBAC of that cluster decides. ClusterRoles that the cluster does not have are
//     looked up in the system cluster, where upstream's bootstrap roles stand once for
//     all. StorageProvider shows them in the API too, and lets the check against
//     escalation find them.
//
// # Impersonation
//
// Upstream's constrained impersonation (verbs impersonate:* and impersonate-on:*) is
// refused to all but administrators: its filter remembers, under a key that knows no
// cluster, who may impersonate whom, so what an admin of one workspace may do there would
// be allowed in all; and it asks for all groups at once. The plain verb impersonate asks
// each time.
package authz

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/server/authn"
	"github.com/13eedeaf/kcp/pkg/server/storage"
)

// AccessVerb on the path "/" inside a workspace lets a user enter it.
const AccessVerb = "access"

// ServicesPrefix is the path prefix of virtual workspaces, which authorize for
// themselves.
const ServicesPrefix = "/services/"

// UnknownCluster stands in the context of a request to a workspace that does not exist.
// No object can have this cluster (it is no valid name) and nobody may enter it, so the
// request takes the way of one to a foreign workspace, and ends alike.
const UnknownCluster logicalcluster.Name = "-"

// NoAccess is the reason given wherever a user may not enter, whether or not the
// workspace exists.
const NoAccess = "access to the workspace denied, or there is no such workspace"

// Authorizer is the cluster-aware authorizer and rule resolver.
type Authorizer struct {
	rbac *rbac.RBACAuthorizer
	// own resolves the cluster's own bindings only. They say who may enter: bootstrap
	// bindings of the system cluster give every user discovery, which is no right to. And
	// they are few, so they are asked first.
	own *rbac.RBACAuthorizer
}

var (
	_ authorizer.Authorizer   = &Authorizer{}
	_ authorizer.RuleResolver = &Authorizer{}
)

// New returns an authorizer that reads RBAC objects from the registry's watch caches.
func New(registry *storage.Registry) *Authorizer {
	own := getter{registry: registry}
	all := getter{registry: registry, withSystem: true}
	return &Authorizer{
		rbac: rbac.New(all, all, all, all),
		own:  rbac.New(own, own, own, own),
	}
}

// Authorize implements authorizer.Authorizer for the cluster in ctx.
func (a *Authorizer) Authorize(ctx context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	cluster, err := logicalcluster.FromContext(ctx)
	if err != nil {
		return authorizer.DecisionDeny, "", err
	}
	if slices.Contains(attrs.GetUser().GetGroups(), user.SystemPrivilegedGroup) {
		return authorizer.DecisionAllow, "", nil
	}
	if !attrs.IsResourceRequest() && strings.HasPrefix(attrs.GetPath(), ServicesPrefix) {
		return authenticated(attrs.GetUser())
	}
	switch cluster {
	case logicalcluster.Wildcard:
		return authorizer.DecisionDeny, "the wildcard cluster is for administrators", nil
	case logicalcluster.System:
		if attrs.IsResourceRequest() {
			return authorizer.DecisionDeny, "the system cluster is for administrators; to reach a workspace, use /clusters/<workspace>", nil
		}
		return a.rbac.Authorize(ctx, attrs)
	}
	if impersonatesSystem(attrs) {
		return authorizer.DecisionDeny, "system identities cannot be impersonated", nil
	}
	ctx = remembering(ctx, cluster)
	if ok, err := a.mayEnter(ctx, attrs.GetUser(), cluster); !ok || err != nil {
		return authorizer.DecisionDeny, NoAccess, err
	}
	// RBAC only ever adds, so what the cluster's own bindings allow is decided; an error
	// is met again below.
	if decision, reason, err := a.own.Authorize(ctx, attrs); err == nil && decision == authorizer.DecisionAllow {
		return decision, reason, nil
	}
	return a.rbac.Authorize(ctx, attrs)
}

// ConditionsAwareAuthorize has no conditions to add.
func (a *Authorizer) ConditionsAwareAuthorize(ctx context.Context, attrs authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attrs))
}

// EvaluateConditions is never reached: no decision carries conditions.
func (a *Authorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor implements authorizer.RuleResolver.
func (a *Authorizer) RulesFor(ctx context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return a.rbac.RulesFor(ctx, u, namespace)
}

// mayEnter reports whether u has the verb access in the cluster. A cluster's own service
// accounts always may.
func (a *Authorizer) mayEnter(ctx context.Context, u user.Info, cluster logicalcluster.Name) (bool, error) {
	if cluster == UnknownCluster {
		return false, nil
	}
	// The account of the same name in another cluster is somebody else. One that is
	// impersonated names no cluster: it is this one's.
	if home, ok := authn.ClusterOf(u); ok && home != cluster {
		return false, nil
	}
	if _, _, err := serviceaccount.SplitUsername(u.GetName()); err == nil {
		return true, nil
	}
	decision, _, err := a.own.Authorize(logicalcluster.WithCluster(ctx, cluster), authorizer.AttributesRecord{
		User: u,
		Verb: AccessVerb,
		Path: "/",
	})
	return decision == authorizer.DecisionAllow, err
}

func authenticated(u user.Info) (authorizer.Decision, string, error) {
	if slices.Contains(u.GetGroups(), user.AllAuthenticated) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "log in first", nil
}

// impersonatesSystem recognizes impersonation of the server's own users and groups, and
// constrained impersonation. An admin of a workspace holds every verb in it,
// impersonation too, and would otherwise leave it that way. Service accounts and the
// groups that every login has are the workspace's own.
func impersonatesSystem(attrs authorizer.Attributes) bool {
	verb, constrained, _ := strings.Cut(attrs.GetVerb(), ":")
	if verb != "impersonate" && verb != "impersonate-on" {
		return false
	}
	if constrained != "" {
		return true
	}
	name := attrs.GetName()
	if !strings.HasPrefix(name, "system:") {
		return false
	}
	switch {
	case strings.HasPrefix(name, serviceaccount.ServiceAccountUsernamePrefix),
		name == serviceaccount.AllServiceAccountsGroup,
		strings.HasPrefix(name, serviceaccount.ServiceAccountGroupPrefix),
		name == user.AllAuthenticated, name == user.AllUnauthenticated, name == user.Anonymous:
		return false
	}
	return true
}
