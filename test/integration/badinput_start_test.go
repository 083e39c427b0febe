package integration

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/13eedeaf/kcp/pkg/server"
	"github.com/13eedeaf/kcp/pkg/server/options"
)

// tryStart does what `kcp start` does up to serving, and returns its error. It leaves
// nothing running.
func tryStart(t *testing.T, change func(o *options.Options)) error {
	t.Helper()
	o := options.New()
	o.ControlPlane.SecureServing.BindPort = unusedPort(t)
	change(o)
	completed, err := o.Complete()
	if err != nil {
		return err
	}
	if err := errors.Join(completed.Validate()...); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := server.New(ctx, completed)
	if err != nil {
		return err
	}
	s.Close()
	return nil
}

func unusedPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// shortDir is a temporary directory whose name leaves room for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kcp-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func write(t *testing.T, content string, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	must(t, os.MkdirAll(filepath.Dir(file), 0o700))
	must(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

// TestStartRefused: what keeps a server from starting is one line that names what is wrong;
// afterwards the directory and the port can be used.
func TestStartRefused(t *testing.T) {
	garbage := strings.Repeat("garbage ", 4096)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = busy.Close() }()

	for name, tc := range map[string]struct {
		change func(t *testing.T, o *options.Options)
		want   string // DIR stands for the root directory
	}{
		"a port in use": {
			func(_ *testing.T, o *options.Options) {
				o.ControlPlane.SecureServing.BindPort = busy.Addr().(*net.TCPAddr).Port
			},
			"address already in use: stop what uses the port, or choose another",
		},
		"an address of another machine": {
			func(_ *testing.T, o *options.Options) {
				o.ControlPlane.SecureServing.BindAddress = net.ParseIP("192.0.2.1")
			},
			"cannot listen on --bind-address and --secure-port",
		},
		"a root directory that is a file": {
			func(t *testing.T, o *options.Options) { o.RootDirectory = write(t, "", o.RootDirectory, "file") },
			`cannot make --root-directory "DIR/file"`,
		},
		"a root directory that cannot be made": {
			func(t *testing.T, o *options.Options) {
				o.RootDirectory = filepath.Join(write(t, "", o.RootDirectory, "file"), "below")
			},
			`cannot make --root-directory "DIR/file/below"`,
		},
		"a root directory that cannot be written": {
			func(_ *testing.T, o *options.Options) { o.RootDirectory = "/proc/self" },
			`cannot use --root-directory "/proc/self"`,
		},
		"a damaged etcd database": {
			func(t *testing.T, o *options.Options) { write(t, garbage, o.RootDirectory, "etcd/member/snap/db") },
			`cannot start the embedded etcd on "DIR/etcd" (log: DIR/etcd.log): failed to open database: invalid database: if the directory is damaged, restore it from a backup`,
		},
		"an etcd directory that is a file": {
			func(t *testing.T, o *options.Options) { write(t, garbage, o.RootDirectory, "etcd") },
			"cannot make the etcd directory: mkdir DIR/etcd",
		},
		"a damaged CA": {
			func(t *testing.T, o *options.Options) { write(t, garbage, o.RootDirectory, "pki/ca.crt") },
			"DIR/pki/ca.crt",
		},
		"a damaged key": {
			func(t *testing.T, o *options.Options) { write(t, garbage, o.RootDirectory, "pki/service-account.key") },
			`cannot read the key in "DIR/pki/service-account.key"`,
		},
		"damaged users of the embedded provider": {
			func(t *testing.T, o *options.Options) {
				o.EmbeddedIdentityProvider = true
				write(t, "users: [", o.RootDirectory, "idp/users.yaml")
			},
			"DIR/idp/users.yaml",
		},
		"an authentication configuration that is missing": {
			func(_ *testing.T, o *options.Options) {
				o.AuthenticationConfig = filepath.Join(o.RootDirectory, "none.yaml")
			},
			"--authentication-config: stat DIR/none.yaml: no such file or directory",
		},
		"an authentication configuration that does not parse": {
			func(t *testing.T, o *options.Options) {
				o.AuthenticationConfig = write(t, "a: [", o.RootDirectory, "authn.yaml")
			},
			`cannot use the authentication configuration "DIR/authn.yaml"`,
		},
		"an authentication configuration of another kind": {
			func(t *testing.T, o *options.Options) {
				o.AuthenticationConfig = write(t, "apiVersion: v1\nkind: Pod\n", o.RootDirectory, "authn.yaml")
			},
			`cannot use the authentication configuration "DIR/authn.yaml": no kind "Pod" is registered`,
		},
		"an authentication configuration with a field that there is not": {
			func(t *testing.T, o *options.Options) {
				o.AuthenticationConfig = write(t, "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nissuers: []\n", o.RootDirectory, "authn.yaml")
			},
			`unknown field "issuers"`,
		},
		"an issuer without TLS": {
			func(t *testing.T, o *options.Options) {
				o.AuthenticationConfig = write(t, `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt: [{issuer: {url: "http://issuer.example.com", audiences: [kcp]}, claimMappings: {username: {claim: sub, prefix: "x:"}}}]
`, o.RootDirectory, "authn.yaml")
			},
			"URL scheme must be https",
		},
		"two providers": {
			func(_ *testing.T, o *options.Options) {
				o.EmbeddedIdentityProvider, o.LoginIssuer = true, "https://issuer.example.com"
			},
			"--login-issuer and --embedded-idp exclude each other: give one",
		},
		"a login issuer that nobody trusts": {
			func(_ *testing.T, o *options.Options) { o.LoginIssuer = "https://issuer.example.com" },
			"name it in --authentication-config too",
		},
		"a login issuer without TLS": {
			func(_ *testing.T, o *options.Options) { o.LoginIssuer = "http://issuer.example.com" },
			`--login-issuer "http://issuer.example.com": an issuer is an https URL`,
		},
		"no port": {
			func(_ *testing.T, o *options.Options) { o.ControlPlane.SecureServing.BindPort = 0 },
			"--secure-port 0: give a port from 1 to 65535",
		},
		"a host name with a scheme": {
			func(_ *testing.T, o *options.Options) { o.ExternalHostname = "https://kcp.example.com" },
			`--external-hostname "https://kcp.example.com": give a host name or IP without scheme and port`,
		},
		"a certificate without key": {
			func(_ *testing.T, o *options.Options) { o.ControlPlane.SecureServing.ServerCert.CertKey.CertFile = "x" },
			"--tls-cert-file and --tls-private-key-file go together",
		},
		"an etcd that is no address": {
			func(_ *testing.T, o *options.Options) {
				o.ControlPlane.Etcd.StorageConfig.Transport.ServerList = []string{"etcd"}
			},
			`--etcd-servers "etcd": give addresses such as`,
		},
		"an etcd that does not answer": {
			func(_ *testing.T, o *options.Options) {
				o.ControlPlane.Etcd.StorageConfig.Transport.ServerList = []string{"http://127.0.0.1:1"}
			},
			`--etcd-servers: etcd at ["http://127.0.0.1:1"] does not answer`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			err := tryStart(t, func(o *options.Options) {
				o.RootDirectory = dir
				tc.change(t, o)
			})
			if err == nil {
				t.Fatal("the server started")
			}
			if want := strings.ReplaceAll(tc.want, "DIR", dir); !strings.Contains(err.Error(), want) {
				t.Errorf("error %q, want %q", err, want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %q", err)
			}
		})
	}

	t.Run("a root directory in use", func(t *testing.T) {
		dir := shortDir(t)
		here := func(o *options.Options) { o.RootDirectory = dir }
		o := options.New()
		o.ControlPlane.SecureServing.BindPort = unusedPort(t)
		here(o)
		completed, err := o.Complete()
		must(t, err)
		s, err := server.New(t.Context(), completed)
		must(t, err)
		want := "--root-directory \"" + dir + "\" is in use by another kcp server: stop it, or give this one a directory of its own"
		if err := tryStart(t, here); err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
		s.Close()
		if err := tryStart(t, here); err != nil {
			t.Errorf("once it is free: %v", err)
		}
		// What was refused leaves nothing locked.
		if err := tryStart(t, func(o *options.Options) {
			here(o)
			o.ControlPlane.SecureServing.BindPort = busy.Addr().(*net.TCPAddr).Port
		}); err == nil {
			t.Error("started on a port in use")
		}
		if err := tryStart(t, here); err != nil {
			t.Errorf("after a refusal: %v", err)
		}
	})
}
