package bench

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Between these lines of performance.md stands what WriteDocs writes.
const (
	tableBegin = "<!-- begin: written by make bench -->"
	tableEnd   = "<!-- end: written by make bench -->"
)

// plots are the figures that are drawn over the number of workspaces.
var plots = []struct{ file, title, name string }{
	{"create-rate.svg", "Creation, 16 at once", "create.flat"},
	{"create-cpu.svg", "Server CPU per creation", "create.flat.cpu"},
	{"memory.svg", "Live heap of the server", "memory.heap.total"},
	{"get.svg", "GET of a ConfigMap, p50", "get"},
	{"create.svg", "CREATE of a ConfigMap, p50", "create"},
	{"list.svg", "LIST of 100 ConfigMaps, p50", "list"},
	{"start.svg", "Start until ready", "start"},
}

// WriteDocs puts the results into the table of dir/performance.md and draws the plots
// in dir/performance.
func WriteDocs(dir, results string) error {
	figures, err := ReadResults(results)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "performance.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(page), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%q has no place for the table: it stands between %q and %q", path, tableBegin, tableEnd)
	}
	written := before + tableBegin + "\n" + markdown(figures) + tableEnd + after
	if err := os.WriteFile(path, []byte(written), 0o644); err != nil {
		return err
	}
	drawings := filepath.Join(dir, "performance")
	if err := os.MkdirAll(drawings, 0o755); err != nil {
		return err
	}
	for _, p := range plots {
		lines, unit := lines(figures, p.name)
		if err := os.WriteFile(filepath.Join(drawings, p.file), []byte(plot(p.title, unit, lines)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// lines are a figure's values, and its baseline's, over the size.
func lines(figures []Figure, name string) (out []series, unit string) {
	ours, theirs := series{name: "kcp"}, series{name: "kube-apiserver"}
	for _, f := range figures {
		if f.Name != name {
			continue
		}
		unit = f.Unit
		ours.x, ours.y = append(ours.x, float64(f.Size)), append(ours.y, f.Value)
		if f.Baseline != nil {
			theirs.x, theirs.y = append(theirs.x, float64(f.Size)), append(theirs.y, f.Baseline.Value)
		}
	}
	out = []series{ours}
	if len(theirs.x) > 0 {
		out = append(out, theirs)
	}
	return out, unit
}

// markdown is the table: each figure at the largest size it was measured at, and at
// others in a row of its own where it has a target.
func markdown(figures []Figure) string {
	largest := map[string]int{}
	for _, f := range figures {
		largest[f.Figure+f.Name] = max(largest[f.Figure+f.Name], f.Size)
	}
	var b strings.Builder
	b.WriteString("| | figure | at | measured | p99 | baseline | ratio | target | of target | server CPU |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, f := range figures {
		if f.Size != largest[f.Figure+f.Name] && f.Figure != "P9" && f.Figure != "P3" {
			continue
		}
		baseline, ratio, target, share := "", "", cmp.Or(f.Target, ""), ""
		if f.Baseline != nil {
			baseline, ratio = short(f.Baseline.Value), short(f.Ratio)
		}
		if f.OfTarget > 0 {
			share = short(f.OfTarget)
			if f.OfTarget > 1 {
				share = "**" + share + "**"
			}
		}
		at := ""
		if f.Size > 0 {
			at = fmt.Sprint(f.Size)
		}
		cells := []string{f.Figure, f.Name, at, short(f.Value) + " " + f.Unit, nonzero(f.P99, ""), baseline, ratio, target, share, nonzero(f.CPUSeconds, " s")}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	notes := map[string]bool{}
	for _, f := range figures {
		if f.Note != "" && f.Size == largest[f.Figure+f.Name] {
			notes[f.Figure+" "+f.Name+": "+f.Note] = true
		}
	}
	if len(notes) > 0 {
		b.WriteString("\n")
	}
	for _, note := range slices.Sorted(maps.Keys(notes)) {
		fmt.Fprintf(&b, "- %s.\n", note)
	}
	return b.String()
}

func short(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

func nonzero(v float64, suffix string) string {
	if v == 0 {
		return ""
	}
	return short(v) + suffix
}
