package integration

import (
	"context"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/test/framework"
)

// TestBootstrapRoles: the roles that stand once in the system cluster work in every
// workspace.
func TestBootstrapRoles(t *testing.T) {
	s := framework.Start(t)
	alice := login(t, s, "alice")
	own, _ := alice.home()
	owner := alice.kube(own)
	people := map[string]*person{}
	for _, role := range []string{"admin", "edit", "view"} {
		name := "the-" + role
		people[role] = login(t, s, name)
		bindCluster(t, owner, "kcp:workspace-access", userSubject(name))
		must(t, bindNamespace(t.Context(), owner, "default", role, userSubject(name)))
	}
	may := func(p *person, namespace, group, resource, verb string) bool {
		t.Helper()
		review, err := p.kube(own).AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Group: group, Resource: resource, Verb: verb}},
		}, metav1.CreateOptions{})
		must(t, err)
		return review.Status.Allowed
	}

	t.Run("rights", func(t *testing.T) {
		// Admin, edit and view are put together from others once the server runs.
		framework.Eventually(t, "the roles are filled", func(context.Context) (bool, string) {
			return may(people["view"], "default", "", "pods", "list") && may(people["admin"], "default", "", "pods", "create"), ""
		})
		type right struct{ namespace, group, resource, verb string }
		for role, rights := range map[string]map[right]bool{
			"view": {
				{"default", "", "pods", "list"}: true, {"default", "apps", "deployments", "watch"}: true, {"default", "", "secrets", "get"}: false,
				{"default", "", "configmaps", "create"}: false, {"kube-system", "", "pods", "list"}: false, {"", "", "namespaces", "list"}: false,
			},
			"edit": {
				{"default", "", "secrets", "get"}: true, {"default", "apps", "deployments", "create"}: true,
				{"default", "rbac.authorization.k8s.io", "rolebindings", "create"}: false,
			},
			"admin": {
				{"default", "rbac.authorization.k8s.io", "rolebindings", "create"}: true, {"default", "networking.k8s.io", "ingresses", "delete"}: true,
				{"", "rbac.authorization.k8s.io", "clusterrolebindings", "create"}: false, {"", "tenancy.kcp.io", "workspaces", "create"}: false,
				{"other", "", "pods", "list"}: false,
			},
		} {
			for r, want := range rights {
				if got := may(people[role], r.namespace, r.group, r.resource, r.verb); got != want {
					t.Errorf("%s may %v: %t, want %t", role, r, got, want)
				}
			}
		}
	})

	t.Run("access", func(t *testing.T) {
		review, err := people["view"].kube(own).AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/", Verb: "access"}},
		}, metav1.CreateOptions{})
		if err != nil || !review.Status.Allowed {
			t.Errorf("may access: %+v, %v", review.Status, err)
		}
		rules, err := people["view"].kube(own).AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"},
		}, metav1.CreateOptions{})
		must(t, err)
		if rules.Status.Incomplete || rules.Status.EvaluationError != "" {
			t.Errorf("the rules are incomplete: %s", rules.Status.EvaluationError)
		}
		lists := false
		for _, rule := range rules.Status.ResourceRules {
			lists = lists || contains(rule.Resources, "configmaps") && contains(rule.Verbs, "list")
		}
		access := false
		for _, rule := range rules.Status.NonResourceRules {
			access = access || contains(rule.Verbs, "access") && contains(rule.NonResourceURLs, "/")
		}
		if !lists || !access {
			t.Errorf("the rules name configmaps: %t, access: %t; want both", lists, access)
		}
	})

	t.Run("an admin of a namespace gives what they have", func(t *testing.T) {
		c := people["admin"].kube(own)
		for _, role := range []string{"view", "edit", "admin"} {
			if err := bindNamespace(t.Context(), c, "default", role, userSubject("carol")); err != nil {
				t.Errorf("binding %s: %v", role, err)
			}
		}
		refused(t, "binding cluster-admin", bindNamespace(t.Context(), c, "default", "cluster-admin", userSubject("carol")), "attempting to grant RBAC permissions not currently held")
		refused(t, "in another namespace", bindNamespace(t.Context(), c, "kube-system", "view", userSubject("carol")), "cannot create")
		if err := bindNamespace(t.Context(), c, "default", "no-such-role", userSubject("carol")); !apierrors.IsNotFound(err) {
			t.Errorf("binding a role that there is not: %v, want NotFound", err)
		}
		_, err := c.RbacV1().Roles("default").Create(t.Context(), &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: "readers"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Errorf("a role of what they have: %v", err)
		}
	})

	t.Run("built-in roles are shown and stay as they are", func(t *testing.T) {
		roles := owner.RbacV1().ClusterRoles()
		view, err := roles.Get(t.Context(), "view", metav1.GetOptions{})
		if err != nil || len(view.Rules) == 0 || view.Annotations["kcp.io/cluster"] != "system" {
			t.Fatalf("get view: %v, %v", view, err)
		}
		list, err := roles.List(t.Context(), metav1.ListOptions{})
		must(t, err)
		for _, role := range list.Items {
			if logicalcluster.From(&role) == logicalcluster.System {
				t.Errorf("list shows the built-in role %s", role.Name)
			}
		}
		view.Rules = nil
		_, err = roles.Update(t.Context(), view, metav1.UpdateOptions{})
		refused(t, "changing it", err, "it is built in and cannot be changed in a workspace")
		refused(t, "deleting it", roles.Delete(t.Context(), "view", metav1.DeleteOptions{}), "it is built in and cannot be changed in a workspace")
		if _, err := roles.Get(t.Context(), "no-such-role", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a role that there is not: %v, want NotFound", err)
		}
		// One of the same name takes its place, here and nowhere else.
		_, err = roles.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}}, metav1.CreateOptions{})
		must(t, err)
		framework.Eventually(t, "view gives nothing more", func(context.Context) (bool, string) {
			return !may(people["view"], "default", "", "pods", "list"), ""
		})
		system, err := s.Admin(t, "system").RbacV1().ClusterRoles().Get(t.Context(), "view", metav1.GetOptions{})
		if err != nil || len(system.Rules) == 0 {
			t.Errorf("the built-in role: %v, %v", system, err)
		}
	})

	// Upstream binds rights to the accounts of its controllers, by name.
	t.Run("an account named as a controller is no controller", func(t *testing.T) {
		account := bearer(t, s, accountToken(t, owner, "kube-system", "namespace-controller"))
		if may(account, "default", "", "secrets", "delete") || may(account, "", "", "namespaces", "delete") {
			t.Error("kube-system/namespace-controller has the controller's rights")
		}
	})
}

func contains(list []string, value string) bool {
	for _, v := range list {
		if v == value {
			return true
		}
	}
	return false
}
