package kubeconfig

import (
	"path/filepath"
	"regexp"
	"strings"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Names of the entries that the commands own besides those of a login. They are used
// where the context in use was written by someone else.
const (
	CurrentName  = "workspace.kcp.io/current"
	PreviousName = "workspace.kcp.io/previous"
)

// Plugin is the binary that kubectl runs for "kubectl kcp".
const Plugin = "kubectl-kcp"

var notInName = regexp.MustCompile(`[^a-z0-9.]+`)

// LoginName returns the name of the context, cluster and user that a login to a
// server's host:port writes.
func LoginName(host string) string {
	return "kcp-" + strings.Trim(notInName.ReplaceAllString(strings.ToLower(host), "-"), "-")
}

// OwnContext reports whether the commands may change the cluster entry of a context:
// it is one of theirs and nobody else's.
func OwnContext(cfg *clientcmdapi.Config, name string) bool {
	context, ok := cfg.Contexts[name]
	if !ok || context.Cluster != name {
		return false
	}
	if name == CurrentName {
		return true
	}
	user := cfg.AuthInfos[context.AuthInfo]
	return strings.HasPrefix(name, "kcp-") && context.AuthInfo == name && IsOwnUser(user)
}

// IsOwnUser reports whether a user entry gets its token from "kubectl-kcp get-token".
func IsOwnUser(user *clientcmdapi.AuthInfo) bool {
	if user == nil || user.Exec == nil || len(user.Exec.Args) == 0 || user.Exec.Args[0] != "get-token" {
		return false
	}
	return strings.TrimSuffix(filepath.Base(user.Exec.Command), ".exe") == Plugin
}
