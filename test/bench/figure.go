package bench

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Measure is one measured number.
type Measure struct {
	// Value is the figure itself: for latencies the median.
	Value float64 `json:"value"`
	// N is how many operations or samples it is made from.
	N int `json:"n"`
	// P50 and P99 are percentiles of what was sampled, in Unit; 0 where there are none.
	P50 float64 `json:"p50,omitempty"`
	P99 float64 `json:"p99,omitempty"`
	// CPUSeconds is what the server's process used meanwhile.
	CPUSeconds float64 `json:"cpuSeconds,omitempty"`
}

// Figure is one line of the results.
type Figure struct {
	// Figure is the number in docs/performance.md, such as P1.
	Figure string `json:"figure"`
	Name   string `json:"name"`
	Unit   string `json:"unit"`
	// Size is the scale it was measured at: workspaces, watchers, objects.
	Size int `json:"size,omitempty"`
	Measure
	// Ratio is Value over the baseline's.
	Ratio    float64  `json:"ratio,omitempty"`
	Baseline *Measure `json:"baseline,omitempty"`
	// Target is what is asked for, in words; OfTarget is how much of what is allowed was
	// used, or of what is asked for is missing: above 1 the target is missed.
	Target   string  `json:"target,omitempty"`
	OfTarget float64 `json:"ofTarget,omitempty"`
	Note     string  `json:"note,omitempty"`
}

// against sets the baseline and the ratio to it.
func (f Figure) against(baseline Measure) Figure {
	f.Baseline = &baseline
	if baseline.Value != 0 {
		f.Ratio = f.Value / baseline.Value
	}
	return f
}

// atMost sets a target that the value must not exceed.
func (f Figure) atMost(limit float64) Figure {
	f.Target = fmt.Sprintf("≤ %g %s", limit, f.Unit)
	f.OfTarget = f.Value / limit
	return f
}

// atLeast sets a target that the value must reach.
func (f Figure) atLeast(limit float64) Figure {
	f.Target = fmt.Sprintf("≥ %g %s", limit, f.Unit)
	f.OfTarget = limit / f.Value
	return f
}

// ratioAtMost sets a target relative to the baseline.
func (f Figure) ratioAtMost(limit float64) Figure {
	f.Target = fmt.Sprintf("≤ %g × baseline", limit)
	f.OfTarget = f.Ratio / limit
	return f
}

// latencies sums up durations in milliseconds.
func latencies(samples []time.Duration) Measure {
	ms := make([]float64, len(samples))
	for i, d := range samples {
		ms[i] = float64(d) / float64(time.Millisecond)
	}
	return distribution(ms)
}

func distribution(samples []float64) Measure {
	sorted := slices.Sorted(slices.Values(samples))
	p50 := percentile(sorted, 50)
	return Measure{Value: p50, N: len(sorted), P50: p50, P99: percentile(sorted, 99)}
}

// percentile is by the nearest rank; of nothing it is 0.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// key tells figures apart that are measured again in a later run.
func (f Figure) key() string { return fmt.Sprintf("%s|%s|%d", f.Figure, f.Name, f.Size) }

// ReadResults reads figures, one JSON object per line. No file means no figures.
func ReadResults(path string) ([]Figure, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var out []Figure
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var f Figure
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
			return nil, fmt.Errorf("cannot read results %q: %w", path, err)
		}
		out = append(out, f)
	}
	return out, lines.Err()
}

// MergeResults puts figures into the file: those measured again replace their
// predecessors, the others stay.
func MergeResults(path string, figures []Figure) error {
	old, err := ReadResults(path)
	if err != nil {
		return err
	}
	measured := map[string]bool{}
	for _, f := range figures {
		measured[f.key()] = true
	}
	all := append(slices.DeleteFunc(old, func(f Figure) bool { return measured[f.key()] }), figures...)
	slices.SortStableFunc(all, func(a, b Figure) int {
		return cmp.Or(cmp.Compare(number(a.Figure), number(b.Figure)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Size, b.Size))
	})
	var data []byte
	for _, f := range all {
		line, err := json.Marshal(f)
		if err != nil {
			return fmt.Errorf("cannot encode figure %q: %w", f.Name, err)
		}
		data = append(append(data, line...), '\n')
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// number orders P2 before P10.
func number(figure string) int {
	var n int
	_, _ = fmt.Sscanf(figure, "P%d", &n) // 0 for what has no number
	return n
}
