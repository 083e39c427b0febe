package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// command is kubectl in a workspace.
func (p *podsWorld) command(ctx context.Context, workspace string, args ...string) *exec.Cmd {
	cmd := p.f.Command(ctx, "kubectl", append([]string{"--server", serverURL + "/clusters/" + workspace, "-n", p.app.namespace}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+p.bin+":"+os.Getenv("PATH"), "HOME="+p.dir, "KUBECONFIG="+filepath.Join(p.dir, "admin.kubeconfig"))
	return cmd
}

// try runs kubectl in the user's workspace; errs is what it says on standard error.
func (p *podsWorld) try(t *testing.T, args ...string) (out, errs string, err error) {
	t.Helper()
	return p.tryIn(t, "root:shop", "", args...)
}

func (p *podsWorld) tryIn(t *testing.T, workspace, stdin string, args ...string) (out, errs string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := p.command(ctx, workspace, args...)
	var o, e bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &o, &e
	err = cmd.Run()
	return o.String(), e.String(), err
}

// kubectl runs kubectl in the user's workspace, which must succeed.
func (p *podsWorld) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, err := p.try(t, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, strings.TrimSpace(errs))
	}
	return out
}

// pod returns the one running pod of the application, by its name in the workspace.
func (p *podsWorld) pod(t *testing.T) string {
	t.Helper()
	var name string
	eventually(t, time.Minute, "one pod runs", func() (bool, string) {
		out := p.kubectl(t, "get", "pods", "-l", "app=demo", "-o", `jsonpath={range .items[?(@.status.phase=="Running")]}{.metadata.name}{"\n"}{end}`)
		name = strings.TrimSpace(out)
		return name != "" && !strings.Contains(name, "\n"), out
	})
	return name
}

func wantContains(t *testing.T, what, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%s: %q, want it to contain %q", what, got, w)
		}
	}
}

// inTerminal runs kubectl in a pseudo-terminal and returns what it shows.
func (p *podsWorld) inTerminal(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	kubectl := p.command(ctx, "root:shop", args...)
	line := strings.Join(kubectl.Args[slices.Index(kubectl.Args, "kubectl"):], " ")
	cmd := p.f.Command(ctx, "script", "-q", "-e", "-c", line, "/dev/null")
	cmd.Env = kubectl.Env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("in a terminal: %s: %v: %s", line, err, out)
	}
	return string(out)
}

// background is a kubectl that runs beside the test.
type background struct {
	mu    sync.Mutex
	out   bytes.Buffer
	ended chan error
}

func (b *background) output() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.String()
}

func (b *background) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(data)
}

// start runs kubectl in the background until it ends or the test does.
func (p *podsWorld) start(t *testing.T, args ...string) *background {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := p.command(ctx, "root:shop", args...)
	b := &background{ended: make(chan error, 1)}
	cmd.Stdout, cmd.Stderr = b, b
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { b.ended <- cmd.Wait() }()
	t.Cleanup(cancel)
	return b
}

// ends waits for the end of a background kubectl and returns what it printed.
func (b *background) ends(t *testing.T, limit time.Duration, what string) string {
	t.Helper()
	select {
	case <-b.ended:
	case <-time.After(limit):
		t.Fatalf("%s does not end within %s: %s", what, limit, b.output())
	}
	return b.output()
}
