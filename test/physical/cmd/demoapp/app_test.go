package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
)

// get may be called on any goroutine of a test.
func get(t *testing.T, url string) (code int, body string, header http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Error(err)
		return 0, "", nil
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, "", nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	// The client keeps this header to itself.
	if resp.Close {
		resp.Header.Set("Connection", "close")
	}
	return resp.StatusCode, string(data), resp.Header
}

func TestHello(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"greeting": "from a file\n", "token": "t0ken"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const hash = "secret-sha=b46c09677343" // first six bytes of the SHA-256 of t0ken
	cases := map[string]struct {
		env  map[string]string
		want string
	}{
		"Environment": {
			env:  map[string]string{"DEMO_VERSION": "v2", "GREETING": "hi", "TOKEN": "t0ken"},
			want: "version=v2 pod=pod-1 greeting=hi secret=t0ken " + hash + "\n",
		},
		"Files": {
			env:  map[string]string{"CONFIG_DIR": dir, "SECRET_DIR": dir},
			want: "version=unknown pod=pod-1 greeting=from a file secret=t0ken " + hash + "\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, k := range []string{"DEMO_VERSION", "GREETING", "TOKEN"} {
				t.Setenv(k, tc.env[k])
			}
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			server := httptest.NewServer(newApp("pod-1").handler())
			defer server.Close()
			code, body, _ := get(t, server.URL+"/hello")
			if code != http.StatusOK {
				t.Errorf("got status %d", code)
			}
			if diff := cmp.Diff(tc.want, body); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDrain(t *testing.T) {
	a := newApp("pod-1")
	server := httptest.NewServer(a.handler())
	defer server.Close()
	want := func(path string, wantCode int, wantConnection string) {
		t.Helper()
		code, _, header := get(t, server.URL+path)
		if code != wantCode {
			t.Errorf("%s: got status %d, want %d", path, code, wantCode)
		}
		if got := header.Get("Connection"); got != wantConnection {
			t.Errorf("%s: got Connection %q, want %q", path, got, wantConnection)
		}
	}
	want("/readyz", http.StatusOK, "")
	want("/hello", http.StatusOK, "")
	a.drain()
	want("/readyz", http.StatusServiceUnavailable, "close")
	want("/healthz", http.StatusOK, "close")
	want("/hello", http.StatusOK, "close")
}

// TestShutdown checks that a request in flight ends with its answer, and that a
// WebSocket ends with a close frame.
func TestShutdown(t *testing.T) {
	a := newApp("pod-1")
	inner, arrived := a.handler(), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(arrived)
		}
		inner.ServeHTTP(w, r)
	}))
	defer server.Close()

	conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http")+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.WriteMessage(websocket.TextMessage, []byte("hi")); err != nil {
		t.Fatal(err)
	}
	if _, got, err := conn.ReadMessage(); err != nil || string(got) != "hi" {
		t.Fatalf("got %q and error %v, want an echo", got, err)
	}

	slow := make(chan string, 1)
	go func() {
		_, body, _ := get(t, server.URL+"/slow?seconds=0.5")
		slow <- body
	}()
	<-arrived
	stopped := make(chan error, 1)
	go func() { stopped <- a.shutdown(t.Context(), server.Config) }()

	closed := &websocket.CloseError{}
	if _, _, err := conn.ReadMessage(); !errors.As(err, &closed) || closed.Code != websocket.CloseGoingAway {
		t.Errorf("WebSocket ended with %v, want a close frame that says going away", err)
	}
	if got, want := <-slow, "version=unknown pod=pod-1 slept=500ms\n"; got != want {
		t.Errorf("request in flight got %q, want %q", got, want)
	}
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("shutdown does not return")
	}
}

func TestCommand(t *testing.T) {
	cases := map[string]struct {
		args    []string
		want    string
		wantErr bool
	}{
		"print": {args: []string{"print", "hello", "world"}, want: "hello world\n"},
		"cat":   {args: []string{"cat"}, want: "input"},
		"other": {args: []string{"dance"}, wantErr: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			err := command(tc.args, strings.NewReader("input"), &out)
			if (err != nil) != tc.wantErr || out.String() != tc.want {
				t.Errorf("output %q, error %v; want %q, error %v", out.String(), err, tc.want, tc.wantErr)
			}
		})
	}
}
