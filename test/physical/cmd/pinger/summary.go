package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// keptFailures is how many failures are described.
const keptFailures = 10

// summary is what pinger reports.
type summary struct {
	URL     string    `json:"url"`
	Started time.Time `json:"started"`
	// Last is when the latest request ended.
	Last time.Time `json:"last,omitzero"`
	// Requests counts those that ended; Failures those of them that got no
	// answer, one without status 200, or one without the expected text.
	Requests int `json:"requests"`
	Failures int `json:"failures"`
	// Codes counts answers by status; 0 is none.
	Codes map[int]int `json:"codes"`
	// Versions and Pods count what the demo application said about itself.
	Versions map[string]int `json:"versions"`
	Pods     map[string]int `json:"pods"`
	// LongestMillis is the longest time a good answer took.
	LongestMillis int64 `json:"longestMillis"`
	// FirstFailures has the first few failures.
	FirstFailures []failure `json:"firstFailures,omitempty"`
}

type failure struct {
	Time  time.Time `json:"time"`
	Code  int       `json:"code,omitempty"`
	Error string    `json:"error"`
}

// outcome is the end of one request.
type outcome struct {
	started time.Time
	took    time.Duration
	code    int
	body    string
	err     error
}

// recorder adds up outcomes.
type recorder struct {
	mu sync.Mutex
	s  summary
}

func newRecorder(url string, now time.Time) *recorder {
	return &recorder{s: summary{
		URL: url, Started: now,
		Codes: map[int]int{}, Versions: map[string]int{}, Pods: map[string]int{},
	}}
}

func (r *recorder) add(o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.s.Requests++
	r.s.Codes[o.code]++
	if end := o.started.Add(o.took); end.After(r.s.Last) {
		r.s.Last = end
	}
	if o.err != nil {
		r.s.Failures++
		if len(r.s.FirstFailures) < keptFailures {
			r.s.FirstFailures = append(r.s.FirstFailures, failure{Time: o.started, Code: o.code, Error: o.err.Error()})
		}
		return
	}
	r.s.LongestMillis = max(r.s.LongestMillis, o.took.Milliseconds())
	for _, field := range strings.Fields(o.body) {
		switch key, value, _ := strings.Cut(field, "="); key {
		case "version":
			r.s.Versions[value]++
		case "pod":
			r.s.Pods[value]++
		}
	}
}

// failures returns the number of failures so far.
func (r *recorder) failures() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.s.Failures
}

// write replaces the file at path, so that a reader never sees half of it.
func (r *recorder) write(path string) error {
	r.mu.Lock()
	data, err := json.Marshal(r.s)
	r.mu.Unlock()
	if err != nil {
		return fmt.Errorf("cannot encode summary: %w", err)
	}
	data = append(data, '\n')
	if path == "-" {
		_, err := os.Stdout.Write(data)
		return err
	}
	if err := os.WriteFile(path+".tmp", data, 0o644); err != nil {
		return fmt.Errorf("cannot write summary: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("cannot write summary: %w", err)
	}
	return nil
}
