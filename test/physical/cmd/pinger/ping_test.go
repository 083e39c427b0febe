package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gorilla/websocket"
)

// ping runs until the server has seen n requests.
func ping(t *testing.T, n int32, o options, handler http.HandlerFunc) (summary, error) {
	t.Helper()
	dir := t.TempDir()
	o.out, o.stopFile, o.interval = filepath.Join(dir, "out"), filepath.Join(dir, "stop"), 10*time.Millisecond
	if o.timeout == 0 {
		o.timeout = 5 * time.Second
	}
	var seen atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seen.Add(1) == n {
			if err := os.WriteFile(o.stopFile, nil, 0o600); err != nil {
				t.Error(err)
			}
		}
		handler(w, r)
	}))
	defer server.Close()
	// A name that nothing resolves: only the address given may be used.
	o.resolve = strings.TrimPrefix(server.URL, "http://")
	runErr := run(t.Context(), o)
	data, err := os.ReadFile(o.out)
	if err != nil {
		t.Fatal(err)
	}
	s := summary{}
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatalf("summary %q: %v", data, err)
	}
	if got := seen.Load(); !o.socket && int32(s.Requests) != got {
		t.Errorf("summary counts %d requests, the server saw %d", s.Requests, got)
	}
	return s, runErr
}

func TestPing(t *testing.T) {
	const url = "http://demo.example.com/hello"
	cases := map[string]struct {
		options options
		handler http.HandlerFunc
		wantErr error
		want    func(requests int) summary
	}{
		"Good": {
			options: options{url: url, expect: "greeting=hi"},
			handler: func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, "version=v1 pod=p1 greeting=hi host=%s\n", r.Host)
			},
			want: func(n int) summary {
				return summary{URL: url, Requests: n, Codes: map[int]int{200: n}, Versions: map[string]int{"v1": n}, Pods: map[string]int{"p1": n}}
			},
		},
		"Status": {
			options: options{url: url},
			handler: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no backend", http.StatusBadGateway) },
			wantErr: errFailures,
			want: func(n int) summary {
				return summary{URL: url, Requests: n, Failures: n, Codes: map[int]int{502: n}, Versions: map[string]int{}, Pods: map[string]int{},
					FirstFailures: []failure{{Code: 502, Error: "status 502 Bad Gateway: no backend"}}}
			},
		},
		"Redirect": {
			options: options{url: url},
			handler: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
			wantErr: errFailures,
			want: func(n int) summary {
				return summary{URL: url, Requests: n, Failures: n, Codes: map[int]int{302: n}, Versions: map[string]int{}, Pods: map[string]int{},
					FirstFailures: []failure{{Code: 302, Error: `status 302 Found: <a href="/elsewhere">Found</a>.`}}}
			},
		},
		"WrongText": {
			options: options{url: url, expect: "greeting=hi"},
			handler: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "greeting=bye") },
			wantErr: errFailures,
			want: func(n int) summary {
				return summary{URL: url, Requests: n, Failures: n, Codes: map[int]int{200: n}, Versions: map[string]int{}, Pods: map[string]int{},
					FirstFailures: []failure{{Code: 200, Error: `answer does not contain "greeting=hi": greeting=bye`}}}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ping(t, 3, tc.options, tc.handler)
			if !errors.Is(err, tc.wantErr) {
				t.Errorf("got error %v, want %v", err, tc.wantErr)
			}
			if got.Requests < 3 {
				t.Errorf("got %d requests, want at least 3", got.Requests)
			}
			// They are all alike.
			got.FirstFailures = got.FirstFailures[:min(1, len(got.FirstFailures))]
			opts := cmp.Options{cmpopts.IgnoreFields(summary{}, "Started", "Last", "LongestMillis"), cmpopts.IgnoreFields(failure{}, "Time")}
			if diff := cmp.Diff(tc.want(got.Requests), got, opts); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPingOneFailure checks that a single failure among many is not lost.
func TestPingOneFailure(t *testing.T) {
	var n atomic.Int32
	got, err := ping(t, 10, options{url: "http://demo.example.com/"}, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) == 5 {
			panic(http.ErrAbortHandler)
		}
	})
	if !errors.Is(err, errFailures) {
		t.Errorf("got error %v, want %v", err, errFailures)
	}
	if got.Failures != 1 || got.Codes[0] != 1 || got.Codes[200] != got.Requests-1 {
		t.Errorf("got %+v, want one failure without a status", got)
	}
}

// TestPingTimeout checks that requests do not wait for each other.
func TestPingTimeout(t *testing.T) {
	var n atomic.Int32
	got, err := ping(t, 5, options{url: "http://demo.example.com/", timeout: 300 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			<-r.Context().Done()
		}
	})
	if !errors.Is(err, errFailures) {
		t.Errorf("got error %v, want %v", err, errFailures)
	}
	if got.Failures != 1 || got.Requests < 5 {
		t.Errorf("got %+v, want one failure among at least 5 requests", got)
	}
}

func TestPingHostHeader(t *testing.T) {
	got, err := ping(t, 2, options{url: "http://127.0.0.1/", host: "demo.example.com", expect: "demo.example.com"}, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, r.Host)
	})
	if err != nil {
		t.Errorf("%v: %+v", err, got)
	}
}

func TestPingWebSocket(t *testing.T) {
	// The first connection is lost after two messages; the second ends the test.
	var connections atomic.Int32
	got, err := ping(t, 2, options{url: "ws://demo.example.com/ws", socket: true}, func(w http.ResponseWriter, r *http.Request) {
		conn, err := (&websocket.Upgrader{}).Upgrade(w, r, http.Header{"X-Demo-Pod": {fmt.Sprintf("p%d", connections.Add(1))}})
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		for i := 0; i < 2 || connections.Load() > 1; i++ {
			kind, message, err := conn.ReadMessage()
			if err != nil {
				return
			}
			if err := conn.WriteMessage(kind, message); err != nil {
				return
			}
		}
	})
	if !errors.Is(err, errFailures) {
		t.Errorf("got error %v, want %v", err, errFailures)
	}
	if got.Failures != 1 || got.Pods["p1"] != 2 || got.Pods["p2"] < 1 {
		t.Errorf("got %+v, want one failure between two messages to p1 and the rest to p2", got)
	}
}
