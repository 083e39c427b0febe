package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/13eedeaf/kcp/pkg/idp"
)

const (
	loginPassword = "correct horse battery staple"
	// loginCallback is where the command line would listen; nothing has to.
	loginCallback = "http://127.0.0.1:8000/callback"
)

// login measures what a first login costs the server: from the request for the login
// page to the first answer of a kubectl in the new home workspace. People and browsers
// take no time here.
func login(ctx context.Context, e *Env) error {
	s, err := e.startKCP(ctx, "login", "--embedded-idp")
	if err != nil {
		return err
	}
	defer e.clear(s)
	root := filepath.Join(s.dir, "root")
	for i := range e.Scale.Logins {
		add := exec.CommandContext(ctx, e.bin("kcp"), "idp", "add-user", loginUser(i), "--email", loginUser(i)+"@example.com", "--root-directory", root)
		add.Stdin = strings.NewReader(loginPassword + "\n")
		if out, err := add.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot add a user: %w: %s", err, out)
		}
	}
	if err := s.idle(ctx); err != nil {
		return err
	}
	steps := map[string][]time.Duration{}
	var total []time.Duration
	used, err := s.cpuOf(func() error {
		for i := range e.Scale.Logins {
			v, err := newVisitor(s.url, filepath.Join(root, "pki", "ca.crt"), loginUser(i))
			if err != nil {
				return err
			}
			took, err := timed(func() error { return v.visit(ctx, steps) })
			if err != nil {
				return err
			}
			total = append(total, took)
		}
		return nil
	})
	if err != nil {
		return err
	}
	m := latencies(total)
	m.CPUSeconds = used
	figures := []Figure{Figure{Name: "login", Unit: "ms", Measure: m}.atMost(150)}
	for _, step := range []string{"page", "password", "token", "home", "kubectl"} {
		figures = append(figures, Figure{Name: "login." + step, Unit: "ms", Measure: latencies(steps[step])})
	}
	for _, f := range figures {
		f.Figure = "P6"
		if err := e.report(f); err != nil {
			return err
		}
	}
	return nil
}

func loginUser(i int) string { return fmt.Sprintf("user%d", i) }

// visitor is somebody who logs in for the first time: a browser and a command line.
type visitor struct {
	server, user string
	http         *http.Client
	oauth        oauth2.Config
	verifier     string
	// form is where the login page posts to, with its hidden fields.
	action string
	fields url.Values
	code   string
	token  string
	home   string
}

func newVisitor(server, caFile, user string) (*visitor, error) {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	v := &visitor{server: server, user: user, verifier: oauth2.GenerateVerifier()}
	v.http = &http.Client{
		Jar:       jar,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true},
		CheckRedirect: func(req *http.Request, _ []*http.Request) error {
			if strings.HasPrefix(req.URL.String(), loginCallback) {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
	v.oauth = oauth2.Config{
		ClientID: idp.ClientID, RedirectURL: loginCallback, Scopes: idp.Scopes,
		Endpoint: oauth2.Endpoint{AuthURL: server + "/idp/authorize", TokenURL: server + "/idp/oauth/token", AuthStyle: oauth2.AuthStyleInParams},
	}
	return v, nil
}

// visit goes through all steps and adds how long each took.
func (v *visitor) visit(ctx context.Context, steps map[string][]time.Duration) error {
	for _, step := range []struct {
		name string
		f    func(context.Context) error
	}{
		{"page", v.page}, {"password", v.password}, {"token", v.exchange}, {"home", v.goHome}, {"kubectl", v.kubectl},
	} {
		took, err := timed(func() error { return step.f(ctx) })
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		steps[step.name] = append(steps[step.name], took)
	}
	return nil
}

var (
	formAction = regexp.MustCompile(`<form method="post" action="([^"]+)"`)
	formField  = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)"`)
)

// page reads the server's login document and opens the login page.
func (v *visitor) page(ctx context.Context) error {
	if _, err := v.read(ctx, v.server+"/.well-known/kcp-login.json"); err != nil {
		return err
	}
	page, err := v.read(ctx, v.oauth.AuthCodeURL("state", oauth2.S256ChallengeOption(v.verifier), oauth2.SetAuthURLParam("nonce", "nonce")))
	if err != nil {
		return err
	}
	action := formAction.FindStringSubmatch(string(page))
	if action == nil {
		return fmt.Errorf("no login form in %q", page)
	}
	v.action, v.fields = action[1], url.Values{}
	for _, field := range formField.FindAllStringSubmatch(string(page), -1) {
		v.fields.Set(field[1], field[2])
	}
	return nil
}

// password fills in the form and follows it to the command line's callback.
func (v *visitor) password(ctx context.Context) error {
	v.fields.Set("username", v.user)
	v.fields.Set("password", loginPassword)
	base, err := url.Parse(v.server + "/idp/login")
	if err != nil {
		return err
	}
	action, err := base.Parse(v.action)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, action.String(), strings.NewReader(v.fields.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", v.server)
	resp, err := v.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	location, err := resp.Location()
	if err != nil {
		text, _ := io.ReadAll(resp.Body) // it only explains
		return fmt.Errorf("no redirect after login: %s: %s", resp.Status, text)
	}
	v.code = location.Query().Get("code")
	return nil
}

func (v *visitor) exchange(ctx context.Context) error {
	token, err := v.oauth.Exchange(context.WithValue(ctx, oauth2.HTTPClient, v.http), v.code, oauth2.VerifierOption(v.verifier))
	if err != nil {
		return err
	}
	var ok bool
	if v.token, ok = token.Extra("id_token").(string); !ok {
		return errors.New("no id_token in the answer")
	}
	return nil
}

func (v *visitor) goHome(ctx context.Context) error {
	data, err := v.read(ctx, v.server+"/services/home")
	if err != nil {
		return err
	}
	var ws object
	if err := json.Unmarshal(data, &ws); err != nil {
		return err
	}
	v.home = ws.Spec.URL
	return nil
}

// kubectl asks what `kubectl get pods` asks with an empty cache.
func (v *visitor) kubectl(ctx context.Context) error {
	for _, path := range []string{"/api", "/apis", "/api/v1/namespaces/default/pods?limit=500"} {
		if _, err := v.read(ctx, v.home+path); err != nil {
			return err
		}
	}
	return nil
}

func (v *visitor) read(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	if v.token != "" {
		req.Header.Set("Authorization", "Bearer "+v.token)
		req.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")
	}
	resp, err := v.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", address, resp.Status, data)
	}
	return data, err
}
