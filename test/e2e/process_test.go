package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// process is a part of the product that runs in the testbed's network namespace, and
// that tests kill, pause and start again.
type process struct {
	name    string
	log     string
	command func(ctx context.Context) *exec.Cmd

	cmd   *exec.Cmd
	ended chan struct{}
}

// start starts the process unless it runs.
func (p *process) start(t *testing.T) {
	t.Helper()
	if p.cmd != nil {
		return
	}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	// It outlives the subtest that starts it again.
	cmd := p.command(context.WithoutCancel(t.Context()))
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatalf("cannot start %s: %v", p.name, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	p.cmd, p.ended = cmd, ended
}

// signal sends a signal to the process.
func (p *process) signal(s syscall.Signal) {
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s)
	}
}

// stop ends the process with a signal and waits until it has ended.
func (p *process) stop(s syscall.Signal) {
	if p.cmd == nil {
		return
	}
	p.signal(s)
	<-p.ended
	p.cmd = nil
}

// kill is kill -9.
func (p *process) kill() { p.stop(syscall.SIGKILL) }

// restart kills the process and starts it again.
func (p *process) restart(t *testing.T) {
	t.Helper()
	p.kill()
	p.start(t)
}

// tail returns the last lines of the log.
func (p *process) tail() string {
	const lines = 12
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	all = all[max(0, len(all)-lines):]
	for i, line := range all {
		all[i] = line[:min(len(line), 300)]
	}
	return fmt.Sprintf("-- last lines of %s\n%s", filepath.Base(p.log), strings.Join(all, "\n"))
}

// hasEnded reports whether the process has ended by itself.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		p.cmd = nil
		return true
	default:
		return false
	}
}
