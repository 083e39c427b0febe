package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		mutate func(*Options)
		want   []string
	}{
		"fine":              {mutate: func(*Options) {}},
		"no kubeconfig":     {mutate: func(o *Options) { o.Kubeconfig = "" }, want: []string{"--kubeconfig is required"}},
		"bad name":          {mutate: func(o *Options) { o.Name = "A_b" }, want: []string{`--name "A_b"`}},
		"address with port": {mutate: func(o *Options) { o.Addresses = []string{"192.0.2.1:80"} }, want: []string{`--address "192.0.2.1:80"`}},
		"all at once": {
			mutate: func(o *Options) { o.Proxy.ProbeInterval, o.ShutdownGrace = 0, -1 },
			want:   []string{"--probe-interval 0s", "--shutdown-grace -1ns"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := NewOptions()
			o.Kubeconfig, o.Name, o.Addresses = "k", "gw1", []string{"192.0.2.1", "2001:db8::1", "gw.example.com"}
			tc.mutate(o)
			err := o.Validate()
			if (err != nil) != (len(tc.want) > 0) {
				t.Fatalf("got error %v, want %q", err, tc.want)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got error %q, want %q in it", err, want)
				}
			}
		})
	}
}

func TestComplete(t *testing.T) {
	tests := map[string]struct {
		listen    string
		addresses []string
		want      []string
	}{
		"given":          {listen: ":8080", addresses: []string{"gw.example.com"}, want: []string{"gw.example.com"}},
		"from listen":    {listen: "127.0.0.9:8080", want: []string{"127.0.0.9"}},
		"a listen name":  {listen: "localhost:8080", want: []string{"localhost"}},
		"listen on IPv6": {listen: "[::1]:8080", want: []string{"::1"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := NewOptions()
			o.Listen, o.Addresses = tc.listen, tc.addresses
			if err := o.Complete(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, o.Addresses); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			if o.Name == "" {
				t.Error("no name")
			}
		})
	}
	o := NewOptions()
	o.Listen = "8080"
	if err := o.Complete(); err == nil {
		t.Error("--listen 8080 was accepted")
	}
}

func TestCommandSaysWhatIsWrong(t *testing.T) {
	cmd := NewCommand()
	cmd.SetArgs([]string{"--kubeconfig", filepath.Join(t.TempDir(), "missing"), "--name", "gw1", "--listen", "127.0.0.1:0", "--state-dir", ""})
	err := cmd.ExecuteContext(t.Context())
	if err == nil || !strings.Contains(err.Error(), "cannot use --kubeconfig") {
		t.Errorf("got error %v, want one about --kubeconfig", err)
	}
}

func TestStatePath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "here")
	o := NewOptions()
	o.Kubeconfig, o.Name, o.StateDir = filepath.Join(t.TempDir(), "kubeconfig"), "gw1", dir
	kubeconfig := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":"https://192.0.2.1/services/gateway"}}]}`
	if err := os.WriteFile(o.Kubeconfig, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := o.Config()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.statePath(), filepath.Join(dir, "gw1.json"); got != want {
		t.Errorf("state path: got %q, want %q", got, want)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("state directory: %v, %v; want it there with mode 0700", info, err)
	}
}
