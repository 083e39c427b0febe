package cli_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/13eedeaf/kcp/pkg/idp"
)

const (
	password   = "correct horse"
	adminToken = "admin-token"
)

// fake is kcp as far as the plugin sees it: the login document, home workspaces, and the
// objects of workspaces (objects_test.go), in front of a real OpenID provider.
type fake struct {
	url         string
	caPEM       []byte
	fingerprint string
	server      *httptest.Server
	verifier    *oidc.IDTokenVerifier
	ctx         context.Context

	mu       sync.Mutex
	counts   map[string]int
	switches map[string]string // "login": off, "home": forbidden, "device": off
	objects  map[string]object // by path/resource/name
	watchers map[chan event]string
	revision int

	// refreshes lets requests for a refresh meet.
	refreshes chan struct{}
	files     sync.Map
}

func newFake(env *testscript.Env) *fake {
	f := &fake{
		counts: map[string]int{}, switches: map[string]string{},
		objects: map[string]object{}, watchers: map[chan event]string{}, refreshes: make(chan struct{}),
	}
	ca, certificate := newCertificates()
	f.caPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})
	sum := sha256.Sum256(ca.Raw)
	f.fingerprint = "sha256:" + hex.EncodeToString(sum[:])
	f.server = httptest.NewUnstartedServer(nil)
	f.server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	f.server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that trust nobody are part of the tests
	mux := http.NewServeMux()
	f.server.Config.Handler = mux
	f.server.StartTLS()
	env.Defer(f.server.Close)
	f.url = f.server.URL
	must(f.seed)

	dir := filepath.Join(env.Getenv("WORK"), "idp")
	for _, user := range []string{"alice", "bob"} {
		must(func() error {
			return idp.AddUser(filepath.Join(dir, idp.UsersFile), user, user+"@example.com", nil, password)
		})
	}
	provider, err := idp.New(idp.Options{Issuer: f.url + "/idp", Dir: dir, DevicePoll: time.Second})
	must(func() error { return err })
	mux.Handle("/idp/", f.countTokens(provider.Handler()))
	mux.HandleFunc("/idp/.well-known/openid-configuration", f.discovery(provider.Handler()))
	mux.HandleFunc("/.well-known/kcp-login.json", f.login)
	mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, object{"gitVersion": cmp.Or(f.value("version"), "v1.37.2+kcp-v9.9.9")})
	})
	mux.HandleFunc("/readyz", f.readyz)
	mux.HandleFunc("/services/home", f.authenticated(f.home))
	mux.HandleFunc("/services/locations/clusters/", f.authenticated(f.serveObjects))
	mux.HandleFunc("/services/drain/", f.authenticated(f.preview))
	mux.HandleFunc("/clusters/", f.authenticated(f.serveObjects))

	var cancel context.CancelFunc
	f.ctx, cancel = context.WithCancel(context.Background())
	env.Defer(cancel)
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	issuer, err := oidc.NewProvider(oidc.ClientContext(f.ctx, client), f.url+"/idp")
	must(func() error { return err })
	f.verifier = issuer.Verifier(&oidc.Config{ClientID: idp.ClientID})
	return f
}

// must fails the test where no *testing.T is at hand.
func must(do func() error) {
	if err := do(); err != nil {
		panic(err)
	}
}

func newCertificates() (*x509.Certificate, tls.Certificate) {
	sign := func(template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(func() error { return err })
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(30*24*time.Hour)
		if parent == nil {
			parent, parentKey = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
		must(func() error { return err })
		cert, err := x509.ParseCertificate(der)
		must(func() error { return err })
		return cert, key
	}
	ca, caKey := sign(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	leaf, key := sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kcp"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, ca, caKey)
	return ca, tls.Certificate{Certificate: [][]byte{leaf.Raw, ca.Raw}, PrivateKey: key}
}

func (f *fake) set(name, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.switches[name] = value
}

func (f *fake) is(name, value string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.switches[name] == value
}

func (f *fake) value(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.switches[name]
}

// readyz tells the time too: the switch "ahead" moves the server's clock.
func (f *fake) readyz(w http.ResponseWriter, _ *http.Request) {
	if ahead := f.value("ahead"); ahead != "" {
		d, err := time.ParseDuration(ahead)
		must(func() error { return err })
		w.Header().Set("Date", time.Now().Add(d).UTC().Format(http.TimeFormat))
	}
	if f.is("readyz", "failed") {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, "ok")
}

func (f *fake) count(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[name]++
}

func (f *fake) counted(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[name]
}

// countTokens counts requests at the token endpoint by grant. With the switch
// "refresh" at "meet", a refresh waits until a second one comes, or for a second:
// processes that do not wait for each other do meet then.
func (f *fake) countTokens(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.Header.Get("Content-Type") == "application/x-www-form-urlencoded" {
			body, err := io.ReadAll(r.Body)
			must(func() error { return err })
			r.Body = io.NopCloser(bytes.NewReader(body))
			form, err := url.ParseQuery(string(body))
			must(func() error { return err })
			switch {
			case form.Get("grant_type") != "":
				f.count(form.Get("grant_type"))
			case strings.HasSuffix(r.URL.Path, "/revoke"):
				f.count("revoke")
			}
			if form.Get("grant_type") == "refresh_token" {
				if f.is("refresh", "meet") {
					select {
					case f.refreshes <- struct{}{}:
					case <-f.refreshes:
					case <-time.After(time.Second):
					}
				}
				if f.is("refresh", "rejected") {
					reply(w, http.StatusBadRequest, object{"error": "invalid_grant"})
					return
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// discovery leaves the device flow out of the provider's document when it is switched
// off.
func (f *fake) discovery(next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !f.is("device", "off") {
			next.ServeHTTP(w, r)
			return
		}
		recorder := httptest.NewRecorder()
		next.ServeHTTP(recorder, r)
		var document object
		must(func() error { return json.Unmarshal(recorder.Body.Bytes(), &document) })
		delete(document, "device_authorization_endpoint")
		reply(w, http.StatusOK, document)
	}
}

func (f *fake) login(w http.ResponseWriter, _ *http.Request) {
	switch {
	case f.is("login", "off"):
		http.NotFound(w, nil)
	case f.is("login", "html"):
		_, _ = io.WriteString(w, "<html>some router</html>")
	default:
		reply(w, http.StatusOK, object{"issuer": cmp.Or(f.value("issuer"), f.url+"/idp"), "clientID": idp.ClientID, "scopes": idp.Scopes, "server": f.url})
	}
}

type userKey struct{}

func (f *fake) authenticated(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		user := "admin"
		if token != adminToken {
			id, err := f.verifier.Verify(f.ctx, token)
			if err != nil {
				status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
				return
			}
			var claims struct {
				Name string `json:"preferred_username"`
			}
			must(func() error { return id.Claims(&claims) })
			user = claims.Name
		}
		next(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	}
}

func userOf(r *http.Request) string { return r.Context().Value(userKey{}).(string) }

func (f *fake) home(w http.ResponseWriter, r *http.Request) {
	if f.is("home", "forbidden") {
		status(w, http.StatusForbidden, "Forbidden", "homes are switched off")
		return
	}
	name := userOf(r)
	path := "root:users:" + name
	f.addWorkspace(path, "home")
	reply(w, http.StatusOK, object{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
		"metadata": object{"name": name, "annotations": object{"kcp.io/path": path}},
		"spec":     object{"URL": f.url + "/clusters/" + path, "cluster": idOf(path)},
	})
}

func (f *fake) adminKubeconfig() string {
	return fmt.Sprintf(`# a comment of its owner
apiVersion: v1
kind: Config
current-context: root
clusters:
- name: root
  cluster:
    server: %s/clusters/root
    certificate-authority-data: %s
- name: elsewhere
  cluster:
    server: https://elsewhere.example.com
contexts:
- name: root
  context: {cluster: root, user: admin, namespace: mine}
- name: elsewhere
  context: {cluster: elsewhere, user: other}
users:
- name: admin
  user: {token: %s}
- name: other
  user: {token: secret}
`, f.url, base64.StdEncoding.EncodeToString(f.caPEM), adminToken)
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// A client that went away is part of some tests.
	_ = json.NewEncoder(w).Encode(body)
}

func status(w http.ResponseWriter, code int, reason, message string) {
	reply(w, code, object{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message})
}
