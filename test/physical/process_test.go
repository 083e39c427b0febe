package physical

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseStat(t *testing.T) {
	tail := " 1 1 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 4711 1000 200"
	cases := map[string]struct {
		stat      string
		wantState string
		wantStart uint64
		wantErr   bool
	}{
		"Plain":                {stat: "12 (sleep) S 1" + tail, wantState: "S", wantStart: 4711},
		"CommandLooksLikeStat": {stat: "12 (a) Z 1 (b) R 1" + tail, wantState: "R", wantStart: 4711},
		"Short":                {stat: "12 (sleep) S 1", wantErr: true},
		"Empty":                {stat: "", wantErr: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			state, start, err := parseStat(tc.stat)
			if (err != nil) != tc.wantErr {
				t.Fatalf("got error %v, want one: %t", err, tc.wantErr)
			}
			if state != tc.wantState || start != tc.wantStart {
				t.Errorf("got %q and %d, want %q and %d", state, start, tc.wantState, tc.wantStart)
			}
		})
	}
}

func TestProcess(t *testing.T) {
	dir := t.TempDir()
	log, record := filepath.Join(dir, "log"), filepath.Join(dir, "pid")
	// It says what it got, and needs SIGKILL.
	p, err := start(exec.Command("sh", "-c", "trap 'echo refused' TERM; echo ready; while :; do sleep 0.05; done"), log, record)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.stop(t.Context(), time.Second); err != nil {
			t.Error(err)
		}
	})
	if err := waitUntil(t.Context(), 10*time.Second, func() bool { return logHas(log, "ready") }); err != nil {
		t.Fatal("process did not start")
	}
	got, err := recorded(record)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if !got.alive() {
		t.Error("process is not alive")
	}

	// Somebody else's process, which the pid may be reused for.
	for name, other := range map[string]process{
		"start": {Pid: p.Pid, Start: p.Start + 1, Boot: p.Boot},
		"boot":  {Pid: p.Pid, Start: p.Start, Boot: "another"},
	} {
		if other.alive() {
			t.Errorf("process with another %s is taken for alive", name)
		}
		if err := other.stop(t.Context(), time.Second); err != nil {
			t.Error(err)
		}
	}
	if !p.alive() {
		t.Fatal("a process was stopped that is not the recorded one")
	}

	if err := p.stop(t.Context(), 500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if p.alive() {
		t.Error("process is alive after stop")
	}
	if !logHas(log, "refused") {
		t.Error("process was killed without having been asked to end")
	}
}

func TestRecordedNever(t *testing.T) {
	p, err := recorded(filepath.Join(t.TempDir(), "pid"))
	if err != nil {
		t.Fatal(err)
	}
	if p.alive() {
		t.Error("a process that was never started is alive")
	}
}

func logHas(path, text string) bool {
	data, err := os.ReadFile(path)
	return err == nil && strings.Contains(string(data), text)
}
