package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMain is one of the servers to compare with when a test starts it as such.
func TestMain(m *testing.M) {
	if served, err := ServeBare(context.Background()); served {
		if err != nil {
			fmt.Fprintf(os.Stderr, "error: %v\n", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestQuick runs every benchmark at a tiny scale: all figures are there, with a baseline
// where one is promised. What they are is not looked at.
func TestQuick(t *testing.T) {
	bin := os.Getenv("KCP_BIN")
	if bin == "" {
		t.Skip("KCP_BIN is not set: run make build testbed, and set it to bin")
	}
	if os.Getuid() != 0 {
		t.Skip("the stock control plane needs root")
	}
	var out bytes.Buffer
	// Sockets have short paths, so not in t.TempDir.
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	figures, err := Run(t.Context(), Options{BinDir: bin, WorkDir: dir, Scale: QuickScale(), Out: &out, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}

	var names []string
	for _, f := range figures {
		if !slices.Contains(names, f.Figure) {
			names = append(names, f.Figure)
		}
		if f.Unit == "" || f.N == 0 {
			t.Errorf("%s %s lacks its unit or its number of samples", f.Figure, f.Name)
		}
		if f.Figure == "P3" && (f.Baseline == nil || f.N != f.Baseline.N) {
			t.Errorf("%s %s: the baseline was not asked as often: %+v", f.Figure, f.Name, f)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return number(a) - number(b) })
	if diff := cmp.Diff([]string{"P1", "P2", "P3", "P4", "P5", "P6", "P8", "P9", "P10", "P11", "P13"}, names); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}

	var printed []Figure
	for decoder := json.NewDecoder(&out); ; {
		var f Figure
		if err := decoder.Decode(&f); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		printed = append(printed, f)
	}
	if diff := cmp.Diff(figures, printed); diff != "" {
		t.Errorf("printed figures (-returned +printed):\n%s", diff)
	}
}

func TestPercentiles(t *testing.T) {
	cases := map[string]struct {
		samples          []float64
		wantP50, wantP99 float64
	}{
		"none":     {},
		"one":      {samples: []float64{7}, wantP50: 7, wantP99: 7},
		"even":     {samples: []float64{4, 1, 3, 2}, wantP50: 2, wantP99: 4},
		"unsorted": {samples: []float64{9, 1, 5}, wantP50: 5, wantP99: 9},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := distribution(tc.samples)
			if got.P50 != tc.wantP50 || got.P99 != tc.wantP99 || got.N != len(tc.samples) {
				t.Errorf("got %+v, want p50 %g and p99 %g", got, tc.wantP50, tc.wantP99)
			}
		})
	}
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i+1) * time.Millisecond
	}
	if got := latencies(hundred); got.P50 != 50 || got.P99 != 99 {
		t.Errorf("p50 and p99 of 1 to 100 ms are %g and %g", got.P50, got.P99)
	}
}

func TestTargets(t *testing.T) {
	f := Figure{Unit: "ms", Measure: Measure{Value: 30}}.against(Measure{Value: 20})
	cases := map[string]struct {
		got        Figure
		wantTarget string
		wantOf     float64
	}{
		"at most, missed":    {f.atMost(15), "≤ 15 ms", 2},
		"at least, missed":   {f.atLeast(60), "≥ 60 ms", 2},
		"at least, met":      {f.atLeast(15), "≥ 15 ms", 0.5},
		"ratio, just missed": {f.ratioAtMost(1.2), "≤ 1.2 × baseline", 1.25},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.got.Target != tc.wantTarget || tc.got.OfTarget != tc.wantOf || tc.got.Ratio != 1.5 {
				t.Errorf("got %+v, want %q, %g of the target and ratio 1.5", tc.got, tc.wantTarget, tc.wantOf)
			}
		})
	}
}

func TestMergeResults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results", "latest.jsonl")
	figure := func(number, name string, size int, value float64) Figure {
		return Figure{Figure: number, Name: name, Unit: "ms", Size: size, Measure: Measure{Value: value, N: 1}}
	}
	for _, run := range [][]Figure{
		{figure("P10", "rss", 0, 1), figure("P3", "get", 10, 2), figure("P3", "get", 1, 3)},
		{figure("P3", "get", 10, 4)},
	} {
		if err := MergeResults(path, run); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadResults(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []Figure{figure("P3", "get", 1, 3), figure("P3", "get", 10, 4), figure("P10", "rss", 0, 1)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

func TestWriteDocs(t *testing.T) {
	dir := t.TempDir()
	results := filepath.Join(dir, "latest.jsonl")
	get := Figure{Figure: "P3", Name: "get", Unit: "ms", Size: 10, Measure: Measure{Value: 3, N: 5, P99: 12}, Note: "a note"}
	if err := MergeResults(results, []Figure{get.against(Measure{Value: 2, N: 5}).ratioAtMost(1.1)}); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(dir, "performance.md")
	if err := os.WriteFile(page, []byte("before\n"+tableBegin+"\nold\n"+tableEnd+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteDocs(dir, results); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	row := "| P3 | get | 10 | 3.00 ms | 12.0 | 2.00 | 1.50 | ≤ 1.1 × baseline | **1.36** |  |\n"
	for _, want := range []string{"before\n" + tableBegin + "\n| |", row, "\n- P3 get: a note.\n" + tableEnd + "\nafter\n"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%q is not in the page:\n%s", want, got)
		}
	}
	if strings.Contains(string(got), "old") {
		t.Errorf("what was there before is still there:\n%s", got)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "performance", "get.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(svg, new(struct{})); err != nil {
		t.Errorf("the plot is no XML: %v\n%s", err, svg)
	}
	for _, want := range []string{">kcp<", ">kube-apiserver<", "GET of a ConfigMap, p50, ms"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("%q is not in the plot:\n%s", want, svg)
		}
	}
	if err := os.WriteFile(page, []byte("no place"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteDocs(dir, results); err == nil || !strings.Contains(err.Error(), "no place for the table") {
		t.Errorf("a page without marks: %v", err)
	}
}

func TestReadinessRemembers(t *testing.T) {
	r := &readiness{at: map[string]time.Time{}, waiter: map[string]chan struct{}{}}
	done := make(chan error, 1)
	go func() {
		_, err := r.wait(t.Context(), "a")
		done <- err
	}()
	r.mark("b")
	r.mark("a")
	if err := <-done; err != nil {
		t.Error(err)
	}
	first, err := r.wait(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	r.mark("a")
	if again, err := r.wait(t.Context(), "a"); err != nil || !again.Equal(first) {
		t.Errorf("ready at %v, then at %v (%v)", first, again, err)
	}
}
