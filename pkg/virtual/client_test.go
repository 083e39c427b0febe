package virtual

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Requests of the tests.

func (w *world) do(method, path, contentType, body string, groups ...string) (int, map[string]any) {
	w.t.Helper()
	w.settle()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.server.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	r.Header["Test-Group"] = groups
	w.peer.Tell(r.Header)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, out
}

const start = "?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"

// client follows one stream and keeps what it shows.
type client struct {
	t      *testing.T
	body   io.Closer
	lines  *bufio.Scanner
	synced bool
	held   map[string]string // key to resourceVersion
	events []string
}

func (w *world) stream(path string, groups ...string) *client {
	w.t.Helper()
	w.settle()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.server.URL+path+start, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header["Test-Group"] = groups
	w.peer.Tell(r.Header)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		w.t.Fatalf("stream %s: %d %s", path, resp.StatusCode, b)
	}
	w.t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return &client{t: w.t, body: resp.Body, lines: lines, held: map[string]string{}}
}

// next reads one event; false when the stream has ended.
func (c *client) next() bool {
	c.t.Helper()
	if !c.lines.Scan() {
		return false
	}
	var event struct {
		Type   string
		Object unstructured.Unstructured
	}
	if err := json.Unmarshal(c.lines.Bytes(), &event); err != nil {
		c.t.Fatalf("frame %q: %v", c.lines.Text(), err)
	}
	if event.Type == "BOOKMARK" {
		c.synced = event.Object.GetAnnotations()["k8s.io/initial-events-end"] == "true"
		c.events = append(c.events, "BOOKMARK")
		return true
	}
	key := logicalcluster.KeyOf(&event.Object).String()
	c.events = append(c.events, event.Type+" "+key)
	if _, had := c.held[key]; event.Type != "ADDED" && !had {
		c.t.Errorf("%s of %s, which the stream does not show", event.Type, key)
	} else if event.Type == "ADDED" && had {
		c.t.Errorf("ADDED of %s, which the stream shows", key)
	}
	if event.Type == "DELETED" {
		delete(c.held, key)
		return true
	}
	c.held[key] = event.Object.GetResourceVersion()
	return true
}

// until reads events until ok holds.
func (c *client) until(what string, ok func() bool) {
	c.t.Helper()
	for !ok() {
		if !c.next() {
			c.t.Fatalf("stream ended (%v) before: %s; it shows %v after %v", c.lines.Err(), what, c.keys(), c.events)
		}
	}
}

func (c *client) sync() *client {
	c.t.Helper()
	c.until("bookmark", func() bool { return c.synced })
	return c
}

func (c *client) keys() []string { return slices.Sorted(maps.Keys(c.held)) }

func (c *client) shows(keys ...string) {
	c.t.Helper()
	slices.Sort(keys)
	c.until(fmt.Sprintf("%v", keys), func() bool { return slices.Equal(c.keys(), keys) })
}

func parseJSON(t *testing.T, text string) map[string]any {
	t.Helper()
	return parseAny(t, text).(map[string]any)
}

func parseAny(t *testing.T, text string) any {
	t.Helper()
	var out any
	// Bodies of server-side apply are YAML, of which JSON is a part.
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return out
}
