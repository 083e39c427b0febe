package cli_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestImports keeps the plugin a client: small, quick to start, and free of what only
// the server needs.
func TestImports(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go tool")
	}
	out, err := exec.CommandContext(t.Context(), goTool, "list", "-deps", "github.com/13eedeaf/kcp/cmd/kubectl-kcp").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 100 {
		t.Fatalf("only %d packages listed", len(deps))
	}
	for _, dep := range deps {
		for _, forbidden := range []string{
			"github.com/13eedeaf/kcp/pkg/server", "github.com/13eedeaf/kcp/pkg/reconciler", "github.com/13eedeaf/kcp/pkg/virtual",
			"github.com/13eedeaf/kcp/pkg/idp", "k8s.io/apiserver", "k8s.io/kubernetes", "k8s.io/client-go/kubernetes/scheme", "go.etcd.io",
		} {
			if dep == forbidden || strings.HasPrefix(dep, forbidden+"/") {
				t.Errorf("the plugin imports %s", dep)
			}
		}
	}
}
