package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/test/framework"
)

// person is somebody with credentials of their own: no administrator, and nobody whom an
// administrator impersonates.
type person struct {
	t      *testing.T
	server *framework.Server
	// config has the server's address without a path as its host.
	config *rest.Config
}

// login returns a person with a client certificate.
func login(t *testing.T, s *framework.Server, name string, groups ...string) *person {
	t.Helper()
	config := rest.AnonymousClientConfig(s.AdminConfig(t, "root"))
	config.Host = s.URL
	config.QPS = -1
	config.CertData, config.KeyData = clientCertificate(t, s, name, groups, time.Hour)
	return &person{t: t, server: s, config: config}
}

// bearer returns who holds a token; with an empty one that is anybody.
func bearer(t *testing.T, s *framework.Server, token string) *person {
	t.Helper()
	config := rest.AnonymousClientConfig(s.AdminConfig(t, "root"))
	config.Host = s.URL
	config.QPS = -1
	config.BearerToken = token
	return &person{t: t, server: s, config: config}
}

// clientCertificate has the server's client CA sign a certificate.
func clientCertificate(t *testing.T, s *framework.Server, name string, groups []string, validity time.Duration) (certPEM, keyPEM []byte) {
	t.Helper()
	dir := filepath.Join(s.Root, "pki")
	ca, err := tls.LoadX509KeyPair(filepath.Join(dir, "client-ca.crt"), filepath.Join(dir, "client-ca.key"))
	must(t, err)
	parent, err := x509.ParseCertificate(ca.Certificate[0])
	must(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    time.Now().Add(-2 * time.Hour),
		NotAfter:     time.Now().Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, ca.PrivateKey)
	must(t, err)
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM
}

// clients returns p's clients, by cluster.
func (p *person) clients() *clients.Clients {
	p.t.Helper()
	c, err := clients.New(p.config)
	must(p.t, err)
	return c
}

// kube returns p's client for one cluster.
func (p *person) kube(cluster logicalcluster.Name) kubernetes.Interface {
	p.t.Helper()
	config := rest.CopyConfig(p.config)
	config.Host += cluster.Path().RequestPath()
	return kubernetes.NewForConfigOrDie(config)
}

// as returns p impersonating somebody.
func (p *person) as(who rest.ImpersonationConfig) *person {
	config := rest.CopyConfig(p.config)
	config.Impersonate = who
	return &person{t: p.t, server: p.server, config: config}
}

// response is a server's answer.
type response struct {
	code   int
	body   string
	status metav1.Status
}

// do sends one request; the path is sent as it is written. headers are pairs.
func (p *person) do(method, path, body string, headers ...string) response {
	p.t.Helper()
	client, err := rest.HTTPClientFor(p.config)
	must(p.t, err)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, p.server.URL+path, strings.NewReader(body))
	must(p.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	must(p.t, err)
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	must(p.t, err)
	r := response{code: resp.StatusCode, body: string(data)}
	// What is no Status leaves it empty.
	_ = json.Unmarshal(data, &r.status)
	return r
}

// home makes p's home workspace and returns its path and id.
func (p *person) home() (path, id logicalcluster.Name) {
	p.t.Helper()
	r := p.do(http.MethodGet, "/services/home", "")
	ws := &tenancyv1alpha1.Workspace{}
	if err := json.Unmarshal([]byte(r.body), ws); err != nil || r.code != http.StatusOK {
		p.t.Fatalf("home: %d %s", r.code, r.body)
	}
	return logicalcluster.Name(ws.Annotations[logicalcluster.PathAnnotationKey]), logicalcluster.Name(ws.Spec.Cluster)
}

// accountToken makes a service account, with a token that the server issues.
func accountToken(t *testing.T, c kubernetes.Interface, namespace, name string) string {
	t.Helper()
	makeServiceAccount(t, c, namespace, name)
	token, err := c.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	return token.Status.Token
}

// bindCluster gives subjects a ClusterRole in a whole cluster. It returns when the cache
// that the authorizer reads has the binding.
func bindCluster(t *testing.T, c kubernetes.Interface, role string, subjects ...rbacv1.Subject) {
	t.Helper()
	made, err := c.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   subjects,
	}, metav1.CreateOptions{})
	must(t, err)
	framework.Eventually(t, "the binding counts", func(ctx context.Context) (bool, string) {
		list, err := c.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err.Error()
		}
		return slices.ContainsFunc(list.Items, func(b rbacv1.ClusterRoleBinding) bool { return b.Name == made.Name }), ""
	})
}

// bindNamespace gives subjects a ClusterRole in a namespace.
func bindNamespace(ctx context.Context, c kubernetes.Interface, namespace, role string, subjects ...rbacv1.Subject) error {
	_, err := c.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   subjects,
	}, metav1.CreateOptions{})
	return err
}

func userSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks for 403 and the reason in words.
func refused(t *testing.T, what string, err error, reason string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), reason) {
		t.Errorf("%s: %v, want Forbidden with %q", what, err, reason)
	}
}
