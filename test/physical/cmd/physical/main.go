// Command physical brings up real Kubernetes clusters on this machine and takes
// them down. It also contains what those clusters run: the control plane and the
// kubelet are subcommands, which shares their code in one binary.
package main

import (
	"fmt"
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
)

func main() {
	// The kubelet claims the process's signal handler itself, so the command
	// knows best whether to.
	if len(os.Args) > 1 && os.Args[1] == "kubelet" {
		os.Exit(runKubelet(os.Args[2:]))
	}
	if err := newCommand().ExecuteContext(genericapiserver.SetupSignalContext()); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
