package problem

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestDescribe(t *testing.T) {
	request := func(err error) error {
		return &url.Error{Op: "Get", URL: "https://kcp.example.com:6443/clusters/root?token=secret", Err: err}
	}
	workspaces := schema.GroupResource{Group: "tenancy.kcp.io", Resource: "workspaces"}
	for name, tc := range map[string]struct {
		err         error
		wantMessage string
		wantHint    string
		wantCode    int
	}{
		"a problem speaks for itself": {
			fmt.Errorf("context: %w", New("no %q", "x").Hint("do y")), `no "x"`, "do y", ExitError,
		},
		"login needed": {
			apierrors.NewUnauthorized("no"), "the server does not accept your credentials", "log in again: LOGIN", ExitLogin,
		},
		"forbidden": {
			apierrors.NewForbidden(workspaces, "a", errors.New("no rule")),
			`workspaces.tenancy.kcp.io "a" is forbidden: no rule`, "see who you are to the server: kubectl auth whoami", ExitError,
		},
		"refused": {
			request(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}),
			"cannot reach https://kcp.example.com:6443: connection refused",
			"check that it runs and that the address is right: kubectl config view --minify", ExitError,
		},
		"no such host": {
			request(&net.OpError{Op: "dial", Err: &net.DNSError{Name: "kcp.example.com", Err: "no such host", IsNotFound: true}}),
			`cannot find host "kcp.example.com"`, "check its spelling: kubectl config view --minify", ExitError,
		},
		"unknown authority": {
			request(x509.UnknownAuthorityError{Cert: &x509.Certificate{}}),
			"the certificate of https://kcp.example.com:6443 is signed by an authority that is not trusted here",
			`run the login line that "kcp start" printed, or: kubectl kcp login https://kcp.example.com:6443 --certificate-authority FILE`, ExitError,
		},
		"cancelled": {request(context.Canceled), "cancelled", "", ExitUsage},
		"time out": {
			fmt.Errorf("x: %w", context.DeadlineExceeded), "the server did not answer in time", "see whether it is up: kubectl kcp version", ExitError,
		},
		"several lines and control characters become one line": {
			errors.New("a\n  b\x1b[31m\r\nc"), "a; b[31m; c", "", ExitError,
		},
		"file": {
			&os.PathError{Op: "open", Path: "/x", Err: syscall.EACCES}, `cannot open "/x": permission denied`, "", ExitError,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Describe(tc.err, About{Login: "LOGIN"})
			if got.Error() != tc.wantMessage || got.HintText() != tc.wantHint || got.Code() != tc.wantCode {
				t.Errorf("got  %q, hint %q, code %d\nwant %q, hint %q, code %d",
					got.Error(), got.HintText(), got.Code(), tc.wantMessage, tc.wantHint, tc.wantCode)
			}
		})
	}
}
