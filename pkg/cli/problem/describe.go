package problem

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// About is what Describe knows of the command that failed.
type About struct {
	// Login is the command that logs in to the server in use, or "".
	Login string
}

// Describe explains any error. A *Problem anywhere in the chain speaks for itself.
func Describe(err error, about About) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if about.Login == "" {
		about.Login = "kubectl kcp login https://HOST:6443"
	}
	for _, explain := range []func(error, About) *Problem{explainContext, explainStatus, explainTLS, explainNetwork, explainFile} {
		if p := explain(err, about); p != nil {
			return p.Because(err)
		}
	}
	return New("%s", Reason(err)).Because(err)
}

// Reason returns the text of an error from elsewhere, unless that is about Go's types.
func Reason(err error) string {
	text := err.Error()
	for _, inner := range []string{"Go struct", "Go value", "Go map", "Go slice"} {
		if before, _, found := strings.Cut(text, "cannot unmarshal"); found && strings.Contains(text, inner) {
			return before + "the content has another form than expected"
		}
	}
	return text
}

func explainContext(err error, _ About) *Problem {
	switch {
	case errors.Is(err, context.Canceled):
		return Cancelled("cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return New("the server did not answer in time").Hint("see whether it is up: kubectl kcp version")
	}
	return nil
}

func explainStatus(err error, about About) *Problem {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return nil
	}
	message := status.Status().Message
	switch {
	case apierrors.IsUnauthorized(err):
		return LoginNeeded("the server does not accept your credentials").Hint("log in again: %s", about.Login)
	case apierrors.IsForbidden(err):
		return New("%s", message).Hint("see who you are to the server: kubectl auth whoami")
	case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err):
		return New("the server is busy or starting: %s", message).Hint("see whether it is up: kubectl kcp version")
	}
	return New("%s", message)
}

func explainTLS(err error, _ About) *Problem {
	server := addressOf(err)
	unknown, isUnknown := errors.AsType[x509.UnknownAuthorityError](err)
	if isUnknown && unknown.Cert != nil {
		return New("the certificate of %s is signed by an authority that is not trusted here", server).
			Hint("run the login line that \"kcp start\" printed, or: kubectl kcp login %s --certificate-authority FILE", server)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return New("the certificate of %s is not valid: %s", server, invalid.Error()).
			Hint("see its dates and names: openssl s_client -connect %s", strings.TrimPrefix(server, "https://"))
	}
	if host, ok := errors.AsType[x509.HostnameError](err); ok {
		return New("the certificate of %s is not valid for %q", server, host.Host).
			Hint("use a name or address that it carries: openssl s_client -connect %s", strings.TrimPrefix(server, "https://"))
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return New("the certificate of %s cannot be verified", server).
			Hint("kubectl kcp login %s --certificate-authority FILE", server)
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return New("%s does not speak TLS", server).Hint("check the address: kubectl config view --minify")
	}
	return nil
}

func explainNetwork(err error, _ About) *Problem {
	server := addressOf(err)
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return New("cannot find host %q", dns.Name).Hint("check its spelling: kubectl config view --minify")
	}
	reason := ""
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		reason = "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		reason = "connection lost"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		reason = "the connection ended early"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		reason = "no route to it"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && reason == "" {
		reason = op.Err.Error()
	}
	if isTimeout(err) {
		reason = "no answer in time"
	}
	if reason == "" {
		return nil
	}
	return New("cannot reach %s: %s", server, reason).
		Hint("check that it runs and that the address is right: kubectl config view --minify")
}

func explainFile(err error, _ About) *Problem {
	path, ok := errors.AsType[*os.PathError](err)
	if !ok {
		return nil
	}
	return New("cannot %s %q: %s", path.Op, path.Path, path.Err.Error())
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// addressOf returns scheme://host of the request that failed.
func addressOf(err error) string {
	failed, ok := errors.AsType[*url.Error](err)
	if !ok {
		return "the server"
	}
	u, parseErr := url.Parse(failed.URL)
	if parseErr != nil || u.Host == "" {
		return "the server"
	}
	return u.Scheme + "://" + u.Host
}
