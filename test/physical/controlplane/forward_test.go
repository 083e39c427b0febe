package controlplane

import (
	"context"
	"io"
	"net"
	"testing"
	"time"
)

func TestServiceAddress(t *testing.T) {
	cases := map[string]struct {
		cidr    string
		want    string
		wantErr bool
	}{
		"Range":     {cidr: "10.101.0.0/16", want: "10.101.0.1:443"},
		"NotMasked": {cidr: "10.101.7.9/16", want: "10.101.0.1:443"},
		"IPv6":      {cidr: "fd00::/112", want: "[fd00::1]:443"},
		"Address":   {cidr: "10.101.0.0", wantErr: true},
		"Empty":     {cidr: "", wantErr: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := (&Options{ServiceCIDR: tc.cidr}).serviceAddress()
			if (err != nil) != tc.wantErr {
				t.Fatalf("got error %v, want one: %t", err, tc.wantErr)
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestForward checks that each side can end its half while the other goes on,
// and that forwarding ends with the context.
func TestForward(t *testing.T) {
	server := listen(t)
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			// Answers when all of the question is there.
			go func() {
				defer conn.Close()
				question, err := io.ReadAll(conn)
				if err == nil {
					_, _ = conn.Write(append([]byte("re: "), question...))
				}
			}()
		}
	}()

	front := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 2)
	dial := func() *net.TCPConn {
		t.Helper()
		client, err := net.Dial("tcp", front.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		conn, err := front.Accept()
		if err != nil {
			t.Fatal(err)
		}
		go func() { done <- forward(ctx, conn, server.Addr().String()) }()
		return client.(*net.TCPConn)
	}

	client := dial()
	if _, err := client.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(client)
	if err != nil {
		t.Fatal(err)
	}
	if want := "re: hello"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := <-done; err != nil {
		t.Errorf("a connection that ended well: %v", err)
	}

	idle := dial()
	cancel()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("forwarding goes on after its context is done")
	}
	if err := idle.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Error("connection is open after its context is done")
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
