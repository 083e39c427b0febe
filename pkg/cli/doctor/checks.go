package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/cli/workspace"
	"github.com/13eedeaf/kcp/pkg/version"
)

const loginHint = "kubectl kcp login https://HOST:6443"

func (e *examination) checkKubeconfig(context.Context) (Outcome, string, string) {
	cfg, err := e.Config.Load()
	if err != nil {
		return e.failed(err)
	}
	files := e.Config.Files()
	if len(files) == 0 {
		return Fail, "there is no kubeconfig yet", loginHint
	}
	e.kubeconfig = cfg
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			return e.failed(err)
		}
		if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
			return Warn, fmt.Sprintf("%s is open to others (mode %04o)", file, mode), "chmod 600 " + file
		}
	}
	return OK, strings.Join(files, ", "), ""
}

func (e *examination) checkWorkspace(ctx context.Context) (Outcome, string, string) {
	s, err := e.Open(ctx)
	if err != nil {
		return e.failed(err)
	}
	e.session = s
	return OK, fmt.Sprintf("%s (context %s)", s.Path, s.ContextName), ""
}

// checkServer asks without credentials whether the server is ready. What TLS has against
// it is for the next check to say.
func (e *examination) checkServer(ctx context.Context) (Outcome, string, string) {
	client, err := e.session.Anonymous()
	if err != nil {
		return e.failed(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.session.Base+"/readyz", nil)
	if err != nil {
		return e.failed(err)
	}
	start := e.Clock.Now()
	e.answer, err = client.Do(req) //nolint:bodyclose // closed below, where there is an answer
	e.asked = e.Clock.Since(start)
	switch {
	case err == nil:
		_ = e.answer.Body.Close() // the status and the headers are all that counts
	case isTLS(err):
		e.reachErr = err
		return OK, e.session.Base + " answers", ""
	default:
		return e.failed(err)
	}
	if e.answer.StatusCode >= http.StatusInternalServerError {
		return Fail, fmt.Sprintf("%s is not ready (status %d)", e.session.Base, e.answer.StatusCode),
			fmt.Sprintf("see what it waits for: curl -k %s/readyz?verbose", e.session.Base)
	}
	return OK, fmt.Sprintf("%s answers in %d ms", e.session.Base, e.asked.Milliseconds()), ""
}

// isTLS tells an error of the handshake from one of the network.
func isTLS(err error) bool {
	_, verification := errors.AsType[*tls.CertificateVerificationError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	return verification || authority || record
}

// soon is how long before its end a certificate is worth a warning.
const soon = 7 * 24 * time.Hour

func (e *examination) checkTLS(context.Context) (Outcome, string, string) {
	if e.reachErr != nil {
		return e.failed(e.reachErr)
	}
	if e.answer.TLS == nil || len(e.answer.TLS.PeerCertificates) == 0 {
		return Fail, e.session.Base + " does not speak TLS", loginHint
	}
	leaf := e.answer.TLS.PeerCertificates[0]
	left := leaf.NotAfter.Sub(e.Clock.Now())
	switch {
	case e.session.Insecure():
		return Warn, "the certificate of " + e.session.Base + " is not checked (insecure-skip-tls-verify)",
			"log in again with --ca-fingerprint: kubectl kcp login " + e.session.Base
	case left < soon:
		return Warn, fmt.Sprintf("the server's certificate ends in %s", duration.HumanDuration(left)),
			"tell its administrator; see its dates: openssl s_client -connect " + strings.TrimPrefix(e.session.Base, "https://")
	}
	return OK, "the certificate is trusted and valid until " + leaf.NotAfter.UTC().Format(time.DateOnly), ""
}

// Differences between the clocks that are worth a word, and that break tokens.
const (
	skewWarn = 10 * time.Second
	skewFail = 5 * time.Minute
)

func (e *examination) checkClock(context.Context) (Outcome, string, string) {
	there, err := http.ParseTime(e.answer.Header.Get("Date"))
	if err != nil {
		return Warn, "the server does not tell its time", "see what answers there: curl -ki " + e.session.Base + "/readyz"
	}
	// The header has whole seconds and was written some time before the answer came.
	skew := e.Clock.Now().Add(-e.asked / 2).Sub(there.Add(500 * time.Millisecond)).Round(time.Second)
	way, size := "ahead of", skew
	if skew < 0 {
		way, size = "behind", -skew
	}
	message := fmt.Sprintf("this machine is %s %s the server", size, way)
	switch {
	case size >= skewFail:
		return Fail, message + ": logins expire at the wrong time", "set the clock: timedatectl set-ntp true"
	case size >= skewWarn:
		return Warn, message, "set the clock: timedatectl set-ntp true"
	}
	return OK, "as the server's", ""
}

func (e *examination) checkVersion(ctx context.Context) (Outcome, string, string) {
	info, err := e.session.ServerVersion(ctx)
	if err != nil {
		return e.failed(err)
	}
	client := version.Get()
	kubernetes, own, _ := strings.Cut(info.GitVersion, "+kcp-")
	message := fmt.Sprintf("client %s, server %s (Kubernetes %s)", client.Version, own, kubernetes)
	if own == "" {
		return Warn, "the server's version is " + info.GitVersion + ", which is none of kcp", "see the contexts there are: kubectl config get-contexts"
	}
	if apart(client.Version, own, 0) || apart(client.Kubernetes, kubernetes, 1) {
		return Warn, message, "install the plugin of the server's version, then: kubectl kcp version"
	}
	return OK, message, ""
}

// apart reports whether two versions differ in the major number, or in the minor one by
// more than is allowed. What is no version is not judged.
func apart(a, b string, allowed uint) bool {
	va, errA := utilversion.ParseGeneric(a)
	vb, errB := utilversion.ParseGeneric(b)
	if errA != nil || errB != nil {
		return false
	}
	low, high := min(va.Minor(), vb.Minor()), max(va.Minor(), vb.Minor())
	return va.Major() != vb.Major() || high-low > allowed
}

func (e *examination) checkLogin(ctx context.Context) (Outcome, string, string) {
	user := e.user()
	login, err := e.Login(ctx, user)
	if err != nil {
		return e.failed(err)
	}
	name, err := e.session.Username(ctx)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		// It knows the user; what is wrong with the workspace is for the next check to say.
		name, err = "accepted by the server", nil
	}
	if err != nil {
		return e.failed(err)
	}
	now := e.Clock.Now()
	switch end := certificateEnd(user); {
	case login.Own && !login.Renews:
		return Warn, fmt.Sprintf("%s, until %s; the issuer gave no refresh token", name, login.Expiry.Local().Format(time.TimeOnly)),
			"the scope offline_access is missing at the server; log in again when it ends: kubectl kcp login " + e.session.Base
	case login.Own:
		return OK, fmt.Sprintf("%s; the token lasts until %s and renews itself", name, login.Expiry.Local().Format(time.TimeOnly)), ""
	case !end.IsZero() && end.Sub(now) < soon:
		return Warn, fmt.Sprintf("%s; the client certificate ends in %s", name, duration.HumanDuration(end.Sub(now))),
			"get a new one before that; see its dates: kubectl config view --minify --raw"
	}
	return OK, name + ", with credentials from the kubeconfig", ""
}

func (e *examination) user() *clientcmdapi.AuthInfo {
	if c := e.kubeconfig.Contexts[e.session.ContextName]; c != nil {
		return e.kubeconfig.AuthInfos[c.AuthInfo]
	}
	return nil
}

// certificateEnd returns when the client certificate of a user entry ends; zero if it
// has none that can be read.
func certificateEnd(user *clientcmdapi.AuthInfo) time.Time {
	if user == nil {
		return time.Time{}
	}
	data := user.ClientCertificateData
	if len(data) == 0 && user.ClientCertificate != "" {
		data, _ = os.ReadFile(user.ClientCertificate) // the session has read it before
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return time.Time{}
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return cert.NotAfter
}

func (e *examination) checkAccess(ctx context.Context) (Outcome, string, string) {
	s := e.session
	if err := s.Access(ctx, s.Path); err != nil {
		return e.failed(workspace.Explain(ctx, s, s.Path, err))
	}
	client, err := s.Namespaces(s.Path)
	if err != nil {
		return e.failed(err)
	}
	if _, err := client.List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		_, message, _ := e.failed(err)
		return Warn, fmt.Sprintf("you may enter %s, but not list its namespaces: %s", s.Path, message),
			"see what you may do: kubectl auth can-i --list"
	}
	return OK, fmt.Sprintf("you may work in %s", s.Path), ""
}

func (e *examination) checkLocations(ctx context.Context) (Outcome, string, string) {
	client, err := e.session.EffectiveLocations(e.session.Path)
	if err != nil {
		return e.failed(err)
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return e.failed(err)
	}
	if len(list.Items) == 0 {
		return Warn, "no location can be used here: nothing will run", "ask an administrator of a workspace above for one; see: kubectl kcp locations"
	}
	names, available := make([]string, 0, len(list.Items)), int32(0)
	for i := range list.Items {
		here := int32(0)
		if n := list.Items[i].Status.AvailableInstances; n != nil {
			here = *n
		}
		available += here // one cluster may be at several
		names = append(names, fmt.Sprintf("%s (clusters available: %d)", list.Items[i].Name, here))
	}
	if available == 0 {
		return Warn, "no cluster is available: " + strings.Join(names, ", "), "see how many there are: kubectl kcp locations"
	}
	return OK, strings.Join(names, ", "), ""
}

// reasons is how many candidates are named.
const reasons = 3

func (e *examination) checkPlacement(ctx context.Context) (Outcome, string, string) {
	client, err := e.session.Placements(e.session.Path)
	if err != nil {
		return e.failed(err)
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return e.failed(err)
	}
	if len(list.Items) == 0 {
		return Warn, "there is no placement: nothing will run", "make one that selects all: see kubectl explain placement.spec"
	}
	said := make([]string, 0, len(list.Items))
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.Phase != schedulingv1alpha1.PlacementBound && p.Status.Phase != schedulingv1alpha1.PlacementUnbound {
			return Warn, fmt.Sprintf("%q is not bound: %s", p.Name, whyNot(p)), "see its candidates: kubectl get placement " + p.Name + " -o yaml"
		}
		said = append(said, fmt.Sprintf("%q is %s", p.Name, p.Status.Phase))
	}
	return OK, strings.Join(said, ", "), ""
}

func whyNot(p *schedulingv1alpha1.Placement) string {
	why := []string{}
	if p.Status.Message != "" {
		why = append(why, strings.TrimSuffix(p.Status.Message, "."))
	}
	for _, c := range p.Status.Candidates {
		if !c.Eligible && len(why) <= reasons {
			why = append(why, fmt.Sprintf("at %q: %s", c.Location, c.Reason))
		}
	}
	if len(why) == 0 {
		return "the server has not decided yet"
	}
	return strings.Join(why, "; ")
}
