// Package e2e runs the product as people do, on real clusters.
package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestCordonDrainStory runs the recorded demo, whose script asserts every claim that it
// makes. It needs root and the binaries (make test-e2e builds them).
func TestCordonDrainStory(t *testing.T) {
	script(t, "cordon-drain", "DEMO_NETNS="+netnsName("story"))
}

// netnsName names a network namespace after this process, so that nothing that an
// interrupted run has left behind is in the way.
func netnsName(what string) string { return fmt.Sprintf("kcp-%s-%d", what, os.Getpid()) }

// script runs contrib/demo/<story>/run.sh at full speed and shows its output as it comes.
func script(t *testing.T, story string, env ...string) {
	t.Helper()
	bin := os.Getenv("KCP_BIN")
	if bin == "" {
		t.Skip("KCP_BIN is not set: run make test-e2e")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "contrib", "demo", story, "run.sh"))
	cmd.Env = append(os.Environ(), append(env, "KCP_BIN="+bin, "DEMO_SPEED=0", "NO_COLOR=1")...)
	// The script takes down what it started when it is asked to end.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		t.Log(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the story failed: %v", err)
	}
}
