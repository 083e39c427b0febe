package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCalledWrongly makes sure that every program says 2 to whoever called it wrongly, and
// names the help; what fails although it was called rightly says 1.
func TestCalledWrongly(t *testing.T) {
	bin := os.Getenv("KCP_BIN")
	if bin == "" {
		t.Skip("KCP_BIN is not set: run make test-e2e")
	}
	file := filepath.Join(t.TempDir(), "file")
	put(t, file, "")
	for name, tc := range map[string]struct {
		command string
		code    int
		says    []string
	}{
		"kcp, unknown command":         {"kcp launch", 2, []string{`unknown command "launch" for "kcp"`, "hint: kcp --help"}},
		"kcp, unknown flag":            {"kcp start --nonsense", 2, []string{"unknown flag: --nonsense", "hint: kcp start --help"}},
		"kcp, argument":                {"kcp start here", 2, []string{`"here"`, "hint: kcp start --help"}},
		"kcp, value that cannot be":    {"kcp start --secure-port 70000", 2, []string{"--secure-port", "hint: kcp start --help"}},
		"kcp, values that exclude":     {"kcp start --embedded-idp --login-issuer https://x.example.com", 2, []string{"exclude each other", "hint: kcp start --help"}},
		"kcp, log level":               {"kcp start --v nine", 2, []string{`"nine"`, "hint: kcp start --help"}},
		"kcp idp, unknown command":     {"kcp idp add", 2, []string{`unknown command "add" for "kcp idp"`, "hint: kcp idp --help"}},
		"kcp idp, no name":             {"kcp idp add-user", 2, []string{"hint: kcp idp add-user --help"}},
		"kcp gateway, flag missing":    {"kcp gateway --address 192.0.2.1", 2, []string{"--kubeconfig is required", "hint: kcp gateway --help"}},
		"syncer, unknown flag":         {"syncer --nonsense", 2, []string{"unknown flag: --nonsense", "hint: syncer --help"}},
		"syncer, flags missing":        {"syncer", 2, []string{"--from-kubeconfig", "hint: syncer --help"}},
		"kubectl-kcp, unknown command": {"kubectl-kcp launch", 2, []string{`unknown command "launch" for "kubectl kcp"`, "hint: kubectl kcp --help"}},
		"kubectl-kcp, unknown flag":    {"kubectl-kcp drain --nonsense", 2, []string{"unknown flag: --nonsense", "hint: kubectl kcp drain --help"}},
		"kcp fails":                    {"kcp start --root-directory " + file, 1, []string{file}},
		"kubectl-kcp fails":            {"kubectl-kcp ws --kubeconfig " + file, 1, []string{"no workspace is selected"}},
	} {
		t.Run(name, func(t *testing.T) {
			argv := strings.Fields(tc.command)
			out, err := exec.CommandContext(t.Context(), filepath.Join(bin, argv[0]), argv[1:]...).CombinedOutput()
			code := 0
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				code = exit.ExitCode()
			}
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			for _, want := range append(tc.says, "error: ") {
				if !strings.Contains(string(out), want) {
					t.Errorf("it does not say %q:\n%s", want, out)
				}
			}
		})
	}
}
