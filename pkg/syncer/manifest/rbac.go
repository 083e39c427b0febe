package manifest

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
	"github.com/13eedeaf/kcp/pkg/syncer/resources"
)

// instanceLabel marks what the manifest makes. It is not the label of the namespaces
// that the syncer makes, so that it never takes its own namespace for a tenant's.
const instanceLabel = names.Domain + "syncer-instance"

func labels(id string) map[string]string {
	return map[string]string{"app.kubernetes.io/name": "kcp-syncer", instanceLabel: id}
}

func objectMeta(id, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: labels(id)}
}

func namespacedMeta(id, name string) metav1.ObjectMeta {
	m := objectMeta(id, name)
	m.Namespace = names.SyncerNamespace(id)
	return m
}

func namespace(id string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: objectMeta(id, names.SyncerNamespace(id)),
	}
}

func serviceAccount(id string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: namespacedMeta(id, names.ServiceAccount),
	}
}

var (
	readVerbs  = []string{"get", "list", "watch"}
	writeVerbs = []string{"create", "patch", "delete"}
)

func rbacMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

// rules grants verbs on the resources of synced for which pick holds, one rule a group.
func rules(synced []resources.Resource, pick func(resources.Resource) bool, verbs []string) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, r := range synced {
		if !pick(r) {
			continue
		}
		if n := len(out); n > 0 && out[n-1].APIGroups[0] == r.Group {
			out[n-1].Resources = append(out[n-1].Resources, r.Resource)
			continue
		}
		out = append(out, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: verbs})
	}
	return out
}

func clusterRole(id string, synced []resources.Resource) *rbacv1.ClusterRole {
	all := append(append([]string(nil), readVerbs...), writeVerbs...)
	role := &rbacv1.ClusterRole{TypeMeta: rbacMeta("ClusterRole"), ObjectMeta: objectMeta(id, names.ClusterRole(id))}
	role.Rules = append(role.Rules,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: all},
		// Capacity is summed over the nodes.
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: readVerbs},
		// Pods, replica sets and endpoint slices that controllers make carry no label of
		// ours, so they are watched everywhere and picked by namespace. Deleting a mirrored pod
		// restarts the real one.
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "delete"}},
		rbacv1.PolicyRule{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: readVerbs},
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"replicasets"}, Verbs: readVerbs},
		// The way to Secrets and ConfigMaps; see the package comment.
		rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"rolebindings"}, Verbs: []string{"get", "create"}},
		rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{names.DataRole(id)}, Verbs: []string{"bind"}},
	)
	role.Rules = append(role.Rules, rules(synced, func(r resources.Resource) bool { return !r.Confidential }, all)...)
	return role
}

func subjects(id string) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: names.SyncerNamespace(id), Name: names.ServiceAccount}}
}

func clusterRoleBinding(id string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   rbacMeta("ClusterRoleBinding"),
		ObjectMeta: objectMeta(id, names.ClusterRole(id)),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: names.ClusterRole(id)},
		Subjects:   subjects(id),
	}
}

func dataRole(id string, synced []resources.Resource) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   rbacMeta("ClusterRole"),
		ObjectMeta: objectMeta(id, names.DataRole(id)),
		// They are listed from time to time, not watched.
		Rules: append(rules(synced, func(r resources.Resource) bool { return r.Confidential }, append([]string{"get", "list"}, writeVerbs...)),
			// What the pods' users may see and do, through the tunnel.
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: readVerbs},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/exec", "pods/attach", "pods/portforward"}, Verbs: []string{"get", "create"}},
		),
	}
}

func leaseRole(id string) *rbacv1.Role {
	return &rbacv1.Role{
		TypeMeta:   rbacMeta("Role"),
		ObjectMeta: namespacedMeta(id, "kcp-syncer-lease"),
		Rules: []rbacv1.PolicyRule{
			// RBAC cannot restrict create to a name.
			{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: []string{"create"}},
			{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, ResourceNames: []string{names.Lease}, Verbs: []string{"get", "update"}},
		},
	}
}

func leaseRoleBinding(id string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   rbacMeta("RoleBinding"),
		ObjectMeta: namespacedMeta(id, "kcp-syncer-lease"),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "kcp-syncer-lease"},
		Subjects:   subjects(id),
	}
}
