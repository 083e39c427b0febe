package manifest

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

// policyName is unique per instance.
func policyName(id string) string { return "kcp-syncer-" + id }

func policyMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
}

// policy refuses what the syncer's account writes outside of its own namespaces. It
// looks at no other account's requests.
func policy(id string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	account := fmt.Sprintf("system:serviceaccount:%s:%s", names.SyncerNamespace(id), names.ServiceAccount)
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   policyMeta("ValidatingAdmissionPolicy"),
		ObjectMeta: objectMeta(id, policyName(id)),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
						Rule: admissionregistrationv1.Rule{
							APIGroups:   []string{"*"},
							APIVersions: []string{"*"},
							Resources:   []string{"*/*"},
						},
					},
				}},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name:       "is-the-syncer",
				Expression: fmt.Sprintf("request.userInfo.username == %q", account),
			}},
			Variables:   variables(id),
			Validations: validations(id),
		},
	}
}

func labelled(object, id string) string {
	return fmt.Sprintf("has(%[1]s.metadata.labels) && %[2]q in %[1]s.metadata.labels && %[1]s.metadata.labels[%[2]q] == %[3]q",
		object, names.SyncerLabel, id)
}

func variables(id string) []admissionregistrationv1.Variable {
	return []admissionregistrationv1.Variable{
		{Name: "isNamespace", Expression: `request.resource.group == "" && request.resource.resource == "namespaces"`},
		{Name: "isLease", Expression: fmt.Sprintf(`request.resource.group == "coordination.k8s.io" && request.resource.resource == "leases" && request.namespace == %q`,
			names.SyncerNamespace(id))},
		// Reviews say who may do what and store nothing.
		{Name: "isReview", Expression: `request.resource.group in ["authentication.k8s.io", "authorization.k8s.io"]`},
	}
}

func validations(id string) []admissionregistrationv1.Validation {
	reason := ptr.To(metav1.StatusReasonForbidden)
	return []admissionregistrationv1.Validation{
		{
			// A namespace must carry the label before and after, so that the syncer can
			// neither take over nor give away one.
			Expression: "!variables.isNamespace || ((object == null || (" + labelled("object", id) + ")) && (oldObject == null || (" + labelled("oldObject", id) + ")))",
			Message:    fmt.Sprintf("a kcp syncer may only touch namespaces labelled %s=%s", names.SyncerLabel, id),
			Reason:     reason,
		},
		{
			Expression: "variables.isNamespace || variables.isLease || variables.isReview || (namespaceObject != null && " + labelled("namespaceObject", id) + ")",
			Message:    fmt.Sprintf("a kcp syncer may only write in namespaces labelled %s=%s", names.SyncerLabel, id),
			Reason:     reason,
		},
	}
}

func policyBinding(id string) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   policyMeta("ValidatingAdmissionPolicyBinding"),
		ObjectMeta: objectMeta(id, policyName(id)),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        policyName(id),
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
}
