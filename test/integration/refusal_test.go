package integration

import (
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/13eedeaf/kcp/test/framework"
)

// TestRefusedDiscovery pins what kubectl shows in a workspace that is closed: it asks for
// the API groups first, and prints the error that client-go makes of the refusal.
func TestRefusedDiscovery(t *testing.T) {
	s := framework.Start(t)
	alice, bob := login(t, s, "alice"), login(t, s, "bob")
	alicePath, aliceID := alice.home()
	_, bobID := bob.home()

	_, err := alice.kube(bobID).Discovery().ServerGroups()
	if want := `forbidden: User "alice" cannot get path "/api": access to the workspace denied, or there is no such workspace`; !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("a foreign workspace: %v, want %q", err, want)
	}
	_, err = alice.kube(bobID).Discovery().OpenAPIV3().Paths()
	if want := `forbidden: User "alice" cannot get path "/openapi/v3": access to the workspace denied, or there is no such workspace`; !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("a foreign workspace's schemas: %v, want %q", err, want)
	}
	groups, err := alice.kube(aliceID).Discovery().ServerGroups()
	if err != nil || len(groups.Groups) < 5 {
		t.Errorf("one's own: %d groups, %v", len(groups.Groups), err)
	}
	// Other clients get an object, as from any server.
	if r := alice.do(http.MethodGet, "/clusters/"+string(bobID)+"/api", ""); r.status.Reason != "Forbidden" || r.status.Code != http.StatusForbidden {
		t.Errorf("a plain request: %d %s, want a Status", r.code, r.body)
	}
	if r := alice.do(http.MethodGet, "/clusters/"+string(alicePath)+"/apis", ""); r.code != http.StatusOK {
		t.Errorf("a plain request in one's own: %d %s", r.code, r.body)
	}
}
