package login

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/tenancy/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/cli/trust"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Discovery is the document in which a server says how to log in to it.
type Discovery struct {
	Issuer   string   `json:"issuer"`
	ClientID string   `json:"clientID"`
	Scopes   []string `json:"scopes"`
}

const (
	discoveryPath = "/.well-known/kcp-login.json"
	homePath      = "/services/home"
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 1 << 20
)

// parseServer checks the argument of login and returns scheme://host:port.
func parseServer(arg string) (*url.URL, error) {
	text := arg
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, problem.Usage("server %q is not a URL such as https://kcp.example.com:6443", arg).
			Hint("kubectl kcp login https://HOST:6443")
	}
	if u.Scheme != "https" {
		return nil, problem.Usage("server %q is not an https URL: credentials are never sent in the clear", arg).
			Hint("kubectl kcp login https://%s", u.Host)
	}
	if u.Path != "" && u.Path != "/" {
		return nil, problem.Usage("server %q has a path; login takes the address alone", arg).
			Hint("kubectl kcp login https://%s", u.Host)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// server is a kcp server that a login speaks to.
type server struct {
	url    *url.URL
	rules  trust.Rules
	anchor trust.Anchor
	client *http.Client
}

// connect resolves whom to trust.
func connect(ctx context.Context, u *url.URL, rules trust.Rules) (*server, error) {
	anchor, err := rules.Resolve(ctx, u)
	if err != nil {
		return nil, err
	}
	client, err := anchor.Client()
	if err != nil {
		return nil, err
	}
	// A redirect could lead to a server that nobody vouched for.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &server{url: u, rules: rules, anchor: anchor, client: client}, nil
}

// loginCommand returns the command line that logs in to a server.
func loginCommand(server string, rules trust.Rules) string {
	return strings.Join(append([]string{"kubectl kcp login", server}, rules.Args()...), " ")
}

// discover asks the server how to log in.
func (s *server) discover(ctx context.Context) (*Discovery, error) {
	status, body, err := s.do(ctx, http.MethodGet, discoveryPath, "", nil)
	if err != nil {
		return nil, err
	}
	if status == http.StatusNotFound {
		return nil, problem.New("%s offers no login: it is not a kcp server, or none is configured there", s.url).
			Hint("see what answers there: curl -k %s/version; a kcp server offers one with: kcp start --embedded-idp", s.url)
	}
	var d Discovery
	if status != http.StatusOK || json.Unmarshal(body, &d) != nil || d.Issuer == "" || d.ClientID == "" {
		return nil, problem.New("%s is not a kcp server: it has no login document (status %d at %s)", s.url, status, discoveryPath).
			Hint("see what answers there: curl -k %s/version", s.url)
	}
	if len(d.Scopes) == 0 {
		d.Scopes = []string{"openid"}
	}
	return &d, nil
}

// home returns the user's home workspace, which the server makes at first use.
func (s *server) home(ctx context.Context, token string) (*tenancyv1alpha1.Workspace, logicalcluster.Path, error) {
	status, body, err := s.do(ctx, http.MethodGet, homePath, token, nil)
	if err != nil {
		return nil, "", err
	}
	if status != http.StatusOK {
		return nil, "", problem.New("%s gave no home workspace: %s", s.url, statusMessage(status, body)).
			Hint("see whether the server is healthy: kubectl kcp version")
	}
	var ws tenancyv1alpha1.Workspace
	if err := json.Unmarshal(body, &ws); err != nil {
		return nil, "", problem.New("%s answered %s with something that is not a workspace", s.url, homePath).Because(err)
	}
	path, err := logicalcluster.ParsePath(ws.Annotations[logicalcluster.PathAnnotationKey])
	if err != nil {
		return nil, "", problem.New("%s answered %s without the workspace's path", s.url, homePath).Because(err)
	}
	return &ws, path, nil
}

// username asks the server who a token's bearer is to it; "" when it does not say.
func (s *server) username(ctx context.Context, path logicalcluster.Path, token string) string {
	request := strings.NewReader(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	status, body, err := s.do(ctx, http.MethodPost, path.RequestPath()+"/apis/authentication.k8s.io/v1/selfsubjectreviews", token, request)
	var review struct {
		Status struct {
			UserInfo struct {
				Username string `json:"username"`
			} `json:"userInfo"`
		} `json:"status"`
	}
	// A name to show is not worth failing a login for.
	if err != nil || status != http.StatusCreated || json.Unmarshal(body, &review) != nil {
		return ""
	}
	return review.Status.UserInfo.Username
}

func (s *server) do(ctx context.Context, method, path, token string, body io.Reader) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url.String()+path, body)
	if err != nil {
		return 0, nil, fmt.Errorf("cannot make a request for %q: %w", path, err)
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }() // what counts was read
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, nil, &net.OpError{Op: "read", Err: err}
	}
	return resp.StatusCode, data, nil
}

// statusMessage returns the message of a metav1.Status, else the status code.
func statusMessage(code int, body []byte) string {
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		return status.Message
	}
	return fmt.Sprintf("status %d %s", code, http.StatusText(code))
}
