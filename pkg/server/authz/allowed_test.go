package authz_test

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/server/authn"
	"github.com/13eedeaf/kcp/pkg/server/authz"
)

// account is the service account n:robot of a cluster.
func account(of logicalcluster.Name) user.Info {
	return &user.DefaultInfo{
		Name: "system:serviceaccount:n:robot", Groups: []string{"system:serviceaccounts"},
		Extra: map[string][]string{authn.ClusterKey: {string(of)}},
	}
}

func TestAllowed(t *testing.T) {
	const compute logicalcluster.Name = "compute"
	alice := &user.DefaultInfo{Name: "alice"}
	yes, no := authorizer.DecisionAllow, authorizer.DecisionNoOpinion
	for name, tc := range map[string]struct {
		user      user.Info
		cluster   logicalcluster.Name
		decision  authorizer.Decision
		err       error
		wantAsked bool
		// want is "allowed", the message of a refusal, or of another error.
		want      string
		forbidden bool
	}{
		"allowed": {user: alice, cluster: compute, decision: yes, wantAsked: true, want: "allowed"},
		"refused": {
			user: alice, cluster: compute, decision: no, wantAsked: true, forbidden: true,
			want: `synctargets.workload.kcp.io "east" is forbidden: user "alice" has no verb "sync" on it in cluster "compute"`,
		},
		"denied": {
			user: alice, cluster: compute, decision: authorizer.DecisionDeny, wantAsked: true, forbidden: true,
			want: `synctargets.workload.kcp.io "east" is forbidden: user "alice" has no verb "sync" on it in cluster "compute"`,
		},
		"nobody can tell":               {user: alice, cluster: compute, decision: no, err: errors.New("out of order"), wantAsked: true, want: `cannot authorize "sync" in cluster "compute": out of order`},
		"allowed by one, broken by one": {user: alice, cluster: compute, decision: yes, err: errors.New("out of order"), wantAsked: true, want: "allowed"},
		"the cluster's own account":     {user: account(compute), cluster: compute, decision: yes, wantAsked: true, want: "allowed"},
		"another cluster's account of the same name": {
			user: account("other"), cluster: compute, decision: yes, forbidden: true,
			want: `synctargets.workload.kcp.io "east" is forbidden: user "system:serviceaccount:n:robot" has no verb "sync" on it in cluster "compute"`,
		},
		"no cluster": {
			user: alice, cluster: "*", decision: yes, forbidden: true,
			want: `synctargets.workload.kcp.io "east" is forbidden: user "alice" has no verb "sync" on it in cluster "*"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := false
			a := authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				asked = true
				if cluster, err := logicalcluster.FromContext(ctx); err != nil || cluster != tc.cluster {
					t.Errorf("asked in cluster %q, %v; want %q", cluster, err, tc.cluster)
				}
				if got := a.GetVerb() + " " + a.GetAPIGroup() + "/" + a.GetResource() + "/" + a.GetName(); got != "sync workload.kcp.io/synctargets/east" || !a.IsResourceRequest() {
					t.Errorf("asked for %s, resource request: %v", got, a.IsResourceRequest())
				}
				return tc.decision, "", tc.err
			})
			// The request came in another cluster.
			ctx := logicalcluster.WithCluster(t.Context(), "elsewhere")
			err := authz.Allowed(ctx, a, tc.cluster, authorizer.AttributesRecord{
				User: tc.user, Verb: "sync", APIGroup: "workload.kcp.io", Resource: "synctargets", Name: "east",
			})
			got := "allowed"
			if err != nil {
				got = err.Error()
			}
			if got != tc.want || apierrors.IsForbidden(err) != tc.forbidden {
				t.Errorf("got  %s\nwant %s, forbidden: %v", got, tc.want, tc.forbidden)
			}
			if asked != tc.wantAsked {
				t.Errorf("the authorizer was asked: %v, want %v", asked, tc.wantAsked)
			}
		})
	}
}
