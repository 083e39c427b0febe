//go:build unix

package console

import (
	"os/exec"
	"syscall"
)

// detach keeps a Ctrl-C meant for us from ending the browser.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
