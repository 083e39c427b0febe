package scheduling

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
)

var update = flag.Bool("update", false, "write what the scenarios say now into testdata")

// TestScenarios runs every file of testdata. A file is a list of blocks: commands, a
// line "----", and what the last command says. The world that the commands set up lasts
// to the end of the file.
//
//	time 10m                            set the clock, counted from the start
//	listening 10m                       the server hears heartbeats only since then
//	target NAME [ready] [heard=9m] [cordoned] [evict=20m] [force] [deleting] [cpu=8] [ns=3] [gone]
//	location NAME [labels=k:v,…] [targets=a,b] [problem=…] [gone]
//	placement NAME [selector=k:v] [malformed] [toleration=10m] | placement none
//	decide [ns=web] [current=a+serving+draining+deleting+LOCATION,b] [held=…] [empty]
//	judge
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(t)
			var out []string
			for _, block := range strings.Split(strings.TrimSpace(string(raw)), "\n\n") {
				commands, _, _ := strings.Cut(block, "\n----")
				said := w.run(commands)
				if said != "" {
					said = "\n----" + said
				}
				out = append(out, commands+said)
			}
			got := strings.Join(out, "\n\n") + "\n"
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(raw), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
}

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

type world struct {
	t         *testing.T
	now       time.Time
	listening time.Time
	targets   map[string]*Target
	counts    map[string]int
	locations []string // definitions, in order
	placement *v1alpha1.Placement
}

func newWorld(t *testing.T) *world {
	return &world{t: t, now: start, targets: map[string]*Target{}, counts: map[string]int{}, placement: &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}
}

// run executes the commands of a block and returns what the last one says.
func (w *world) run(commands string) string {
	said := ""
	for _, line := range strings.Split(commands, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		command, rest, _ := strings.Cut(line, " ")
		args := strings.Fields(rest)
		switch command {
		case "time":
			w.now = w.at(args[0])
		case "listening":
			w.listening = w.at(args[0])
		case "target":
			w.target(args)
		case "location":
			w.location(args)
		case "placement":
			w.setPlacement(args)
		case "decide":
			said += w.decide(args)
		case "judge":
			said += w.judge()
		default:
			w.t.Fatalf("unknown command %q", line)
		}
	}
	return said
}

func (w *world) at(s string) time.Time { return start.Add(w.duration(s)) }

func (w *world) duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *world) target(args []string) {
	target := &Target{Key: args[0], Created: start}
	w.counts[args[0]] = 0
	for _, arg := range args[1:] {
		k, v, _ := strings.Cut(arg, "=")
		switch k {
		case "ready":
			target.Ready, target.LastHeartbeat = true, w.now
		case "heard":
			target.LastHeartbeat = w.at(v)
		case "cordoned":
			target.Unschedulable = true
		case "evict":
			target.EvictAfter = w.at(v)
		case "force":
			target.ForceEvict = true
		case "deleting":
			target.Deleting = true
		case "cpu":
			n, _ := strconv.ParseFloat(v, 64)
			target.MilliCPU = int64(n * 1000)
		case "ns":
			w.counts[args[0]], _ = strconv.Atoi(v)
		case "gone":
			delete(w.targets, args[0])
			return
		default:
			w.t.Fatalf("unknown word %q", arg)
		}
	}
	w.targets[args[0]] = target
}

func (w *world) location(args []string) {
	kept := w.locations[:0]
	for _, l := range w.locations {
		if strings.Fields(l)[0] != args[0] {
			kept = append(kept, l)
		}
	}
	w.locations = kept
	if len(args) < 2 || args[1] != "gone" {
		w.locations = append(w.locations, strings.Join(args, " "))
	}
}

func (w *world) built() []*Location {
	var out []*Location
	for _, definition := range w.locations {
		args := strings.Fields(definition)
		l := &v1alpha1.Location{ObjectMeta: metav1.ObjectMeta{Name: args[0]}}
		var targets []*Target
		problem := ""
		for _, arg := range args[1:] {
			k, v, _ := strings.Cut(arg, "=")
			switch k {
			case "labels":
				l.Labels = w.labels(v)
			case "targets":
				for _, name := range strings.Split(v, ",") {
					if target := w.targets[name]; target != nil {
						targets = append(targets, target)
					}
				}
			case "problem":
				problem = strings.ReplaceAll(v, "_", " ")
			default:
				w.t.Fatalf("unknown word %q", arg)
			}
		}
		out = append(out, NewLocation(l, "root", targets, problem))
	}
	return out
}

func (w *world) labels(s string) map[string]string {
	out := map[string]string{}
	for _, pair := range strings.Split(s, ",") {
		k, v, _ := strings.Cut(pair, ":")
		out[k] = v
	}
	return out
}

func (w *world) setPlacement(args []string) {
	if args[0] == "none" {
		w.placement = nil
		return
	}
	p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Name: args[0]}}
	for _, arg := range args[1:] {
		k, v, _ := strings.Cut(arg, "=")
		switch k {
		case "selector":
			p.Spec.LocationSelectors = append(p.Spec.LocationSelectors, metav1.LabelSelector{MatchLabels: w.labels(v)})
		case "malformed":
			p.Spec.LocationSelectors = append(p.Spec.LocationSelectors, metav1.LabelSelector{MatchLabels: map[string]string{"": "-"}})
		case "toleration":
			p.Spec.UnreachableToleration = &metav1.Duration{Duration: w.duration(v)}
		default:
			w.t.Fatalf("unknown word %q", arg)
		}
	}
	w.placement = p
}

func (w *world) decide(args []string) string {
	in := Input{
		Cluster: "abc", Namespace: "web", Placement: w.placement, Locations: w.built(),
		Target:         func(key string) *Target { return w.targets[key] },
		Namespaces:     func(key string) int { return w.counts[key] },
		ListeningSince: w.listening, Now: w.now,
	}
	for _, arg := range args {
		k, v, _ := strings.Cut(arg, "=")
		switch k {
		case "ns":
			in.Namespace = v
		case "empty":
			in.Empty = true
		case "held":
			in.Held = strings.ReplaceAll(v, "_", " ")
		case "current":
			for i, c := range strings.Split(v, ",") {
				words := strings.Split(c, "+")
				current := Current{Target: words[0], Created: start.Add(time.Duration(i) * time.Second)}
				for _, word := range words[1:] {
					switch word {
					case "serving":
						current.Serving = true
					case "draining":
						current.Draining = true
					case "deleting":
						current.Deleting = true
					default:
						current.Location = word
					}
				}
				in.Current = append(in.Current, current)
			}
		default:
			w.t.Fatalf("unknown word %q", arg)
		}
	}
	r := Decide(in)
	var out strings.Builder
	for _, a := range r.Desired {
		fmt.Fprintf(&out, "\nat %s (%s): %s", a.Target, a.Location, a.Reason)
	}
	if len(r.Desired) == 0 {
		out.WriteString("\nnowhere")
	}
	for _, m := range r.Moves {
		fmt.Fprintf(&out, "\nmust leave %s: %s%s%s%s", m.Target, m.Reason, flagged(m.Dead, " [dead]"), flagged(m.Gone, " [gone]"), flagged(m.Force, " [forced]"))
	}
	if r.Blocked != "" {
		out.WriteString("\n" + flagged(r.Held, "held, ") + "blocked: " + r.Blocked)
	}
	out.WriteString(w.next(r.NextDecision))
	return out.String()
}

func (w *world) judge() string {
	v := Judge(w.placement, w.built(), func(key string) int { return w.counts[key] }, w.now)
	var out strings.Builder
	for _, c := range v.Candidates {
		fmt.Fprintf(&out, "\n%s (%s): %v, %s", c.Target.Key, c.Location, c.Eligible(), c.Reason())
	}
	for _, p := range v.Problems {
		out.WriteString("\nproblem: " + p)
	}
	return out.String() + w.next(v.Next)
}

func (w *world) next(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return "\nnext decision at " + t.Sub(start).String()
}

func flagged(b bool, s string) string {
	if b {
		return s
	}
	return ""
}
