package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
)

func TestInstance(t *testing.T) {
	f := newFakeServer(t)
	start(t, f, func(o *Options) { o.Addresses = []string{"192.0.2.1", "gw.example.com"} })
	var got networkingv1alpha1.GatewayInstanceSpec
	eventually(t, "the instance", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		var ok bool
		got, ok = f.instances["gw1"]
		return ok
	})
	want := networkingv1alpha1.GatewayInstanceSpec{Addresses: []string{"192.0.2.1", "gw.example.com"}, LeaseDurationSeconds: 15}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(want, "RenewTime", "Version")); diff != "" {
		t.Errorf("instance (-want +got):\n%s", diff)
	}
	if age := time.Since(got.RenewTime.Time); age < 0 || age > time.Minute {
		t.Errorf("renewed %s ago", age)
	}
}

func TestNothingToServeBeforeTheFirstTable(t *testing.T) {
	f := newFakeServer(t)
	f.away("services")
	g := start(t, f)
	if code, _ := g.adminGet("/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("readyz without a table: %d, want 503", code)
	}
	if code, _ := g.adminGet("/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d, want 200", code)
	}
	if code, _ := g.get("/hello"); code != http.StatusServiceUnavailable {
		t.Errorf("a request without a table: %d, want 503", code)
	}
	f.mu.Lock()
	if len(f.instances) != 0 {
		t.Errorf("a gateway without a table made itself known: %v", f.instances)
	}
	f.mu.Unlock()
	f.back("services")
	eventually(t, "readiness", func() bool { code, _ := g.adminGet("/readyz"); return code == http.StatusOK })
	if code, _ := g.get("/hello"); code != http.StatusNotFound {
		t.Errorf("a request with an empty table: %d, want 404", code)
	}
}

func TestShutdown(t *testing.T) {
	tests := map[string]struct {
		grace   time.Duration
		release bool
	}{
		"waits for the last stream": {grace: time.Minute, release: true},
		"cuts it after the grace":   {grace: 50 * time.Millisecond},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFakeServer(t)
			upgraded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				conn, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					return
				}
				defer func() { _ = conn.Close() }()
				_, _ = fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
				_ = rw.Flush()
				_, _ = io.Copy(conn, rw)
			}))
			t.Cleanup(upgraded.Close)
			deploy(t, f, upgraded)
			g := start(t, f, func(o *Options) { o.ShutdownGrace = tc.grace })
			eventually(t, "the table", func() bool { code, _ := g.adminGet("/readyz"); return code == http.StatusOK })
			conn, err := net.Dial("tcp", g.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := fmt.Fprintf(conn, "GET /hello HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", demoHost); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the stream", func() bool { return g.proxy.Load().InFlight() == 1 })
			g.stop()
			eventually(t, "the end of listening", func() bool {
				probe, err := net.Dial("tcp", g.Addr().String())
				if err == nil {
					_ = probe.Close()
				}
				return err != nil
			})
			if tc.release {
				// The head of the answer is still to be read, the rest is echo.
				reader := bufio.NewReader(conn)
				if _, err := http.ReadResponse(reader, nil); err != nil {
					t.Fatal(err)
				}
				for range 100 {
					if _, err := io.WriteString(conn, "x"); err != nil {
						t.Fatalf("the stream was cut: %v", err)
					}
					if _, err := reader.ReadByte(); err != nil {
						t.Fatalf("the stream was cut: %v", err)
					}
					time.Sleep(time.Millisecond) // the time in which it would be cut
				}
				if err := conn.Close(); err != nil {
					t.Fatal(err)
				}
			}
			g.end()
		})
	}
}
