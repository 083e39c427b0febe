package authn_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/server/authn"
)

const (
	issuer   = "https://kcp.example.com"
	clusterA = logicalcluster.Name("aaaaaaaaaaaaaaaa")
	clusterB = logicalcluster.Name("bbbbbbbbbbbbbbbb")
)

// objects is an ObjectGetter over maps, keyed by kind and place.
type objects struct {
	accounts map[logicalcluster.Key]types.UID
	secrets  map[logicalcluster.Key]types.UID
	pods     map[logicalcluster.Key]types.UID
	lookups  atomic.Int64
}

func meta(kind string, all map[logicalcluster.Key]types.UID, cluster logicalcluster.Name, namespace, name string) (metav1.ObjectMeta, error) {
	uid, ok := all[logicalcluster.Key{Cluster: cluster, Namespace: namespace, Name: name}]
	if !ok {
		return metav1.ObjectMeta{}, apierrors.NewNotFound(corev1.Resource(kind), name)
	}
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid}, nil
}

func (o *objects) GetServiceAccount(_ context.Context, cluster logicalcluster.Name, namespace, name string) (*corev1.ServiceAccount, error) {
	o.lookups.Add(1)
	m, err := meta("serviceaccounts", o.accounts, cluster, namespace, name)
	return &corev1.ServiceAccount{ObjectMeta: m}, err
}

func (o *objects) GetSecret(_ context.Context, cluster logicalcluster.Name, namespace, name string) (*corev1.Secret, error) {
	m, err := meta("secrets", o.secrets, cluster, namespace, name)
	return &corev1.Secret{ObjectMeta: m}, err
}

func (o *objects) GetPod(_ context.Context, cluster logicalcluster.Name, namespace, name string) (*corev1.Pod, error) {
	m, err := meta("pods", o.pods, cluster, namespace, name)
	return &corev1.Pod{ObjectMeta: m}, err
}

func at(cluster logicalcluster.Name, name string) logicalcluster.Key {
	return logicalcluster.Key{Cluster: cluster, Namespace: "ns", Name: name}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// server answers with the user of each request, behind a front that does to the URL and
// the context what the server's own does.
type server struct {
	*httptest.Server
	key     *ecdsa.PrivateKey
	objects *objects
}

func newServer(t *testing.T, change func(*authn.Config)) *server {
	t.Helper()
	s := &server{key: newKey(t), objects: &objects{
		// The same account, with the same UID even, in both clusters: only the cluster
		// tells them apart.
		accounts: map[logicalcluster.Key]types.UID{at(clusterA, "sa"): "uid-1", at(clusterB, "sa"): "uid-1", at(logicalcluster.System, "sa"): "uid-1"},
		secrets:  map[logicalcluster.Key]types.UID{at(clusterA, "bound"): "uid-2"},
		pods:     map[logicalcluster.Key]types.UID{at(clusterA, "bound"): "uid-3", at(clusterB, "elsewhere"): "uid-3"},
	}}
	config := authn.Config{
		ServiceAccounts: &authn.ServiceAccounts{Issuer: issuer, Keys: []any{s.key}, Getter: s.objects},
		Audiences:       authenticator.Audiences{issuer},
		ServicesPrefix:  "/services/",
		Anonymous:       true,
	}
	if change != nil {
		change(&config)
	}
	auth, err := authn.New(t.Context(), config)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cluster := logicalcluster.System
		if rest, ok := strings.CutPrefix(r.URL.Path, "/clusters/"); ok {
			name, path, _ := strings.Cut(rest, "/")
			cluster, r.URL.Path = logicalcluster.Name(name), "/"+path
		}
		resp, ok, err := auth.AuthenticateRequest(r.WithContext(logicalcluster.WithCluster(r.Context(), cluster)))
		if err != nil || !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		owner, _ := authn.ClusterOf(resp.User)
		vouched, _ := authn.IssuerOf(resp.User)
		if err := json.NewEncoder(w).Encode(answer{
			Name: resp.User.GetName(), UID: resp.User.GetUID(), Groups: resp.User.GetGroups(),
			Cluster: owner, Issuer: vouched, Extra: resp.User.GetExtra()[authn.ClusterKey],
		}); err != nil {
			t.Errorf("answer: %v", err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

type answer struct {
	Name    string
	UID     string
	Groups  []string
	Cluster logicalcluster.Name
	Issuer  string
	Extra   []string // what stands under ClusterKey
}

// get returns the status and, if it is 200, the user that the server saw.
func (s *server) get(t *testing.T, path, token string) (int, answer) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := resp.Body.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	var a answer
	if resp.StatusCode == http.StatusOK {
		if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
			t.Fatal(err)
		}
	}
	return resp.StatusCode, a
}

// request describes a token; its zero value is a good one of ns/sa in cluster A.
type request struct {
	cluster  logicalcluster.Name
	account  string
	uid      types.UID
	pod      *core.Pod
	secret   *core.Secret
	audience string
	seconds  int64
}

func (s *server) token(t *testing.T, r request) string {
	t.Helper()
	if r.cluster == "" {
		r.cluster = clusterA
	}
	if r.account == "" {
		r.account, r.uid = "sa", "uid-1"
	}
	if r.audience == "" {
		r.audience = issuer
	}
	if r.seconds == 0 {
		r.seconds = 3600
	}
	account := core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: r.account, UID: r.uid}}
	public, private, err := serviceaccount.Claims(account, r.pod, r.secret, nil, nil, nil, r.seconds, 0, []string{r.audience}, nil)
	if err != nil {
		t.Fatal(err)
	}
	generator, err := authn.NewTokenGenerator(issuer, s.key)
	if err != nil {
		t.Fatal(err)
	}
	token, err := generator.GenerateToken(logicalcluster.WithCluster(t.Context(), r.cluster), public, private)
	if err != nil {
		t.Fatalf("GenerateToken: %v", err)
	}
	return token
}

func TestServiceAccountInItsCluster(t *testing.T) {
	s := newServer(t, nil)
	status, got := s.get(t, "/clusters/"+string(clusterA)+"/api", s.token(t, request{}))
	if status != http.StatusOK {
		t.Fatalf("status = %d, want 200", status)
	}
	want := answer{
		Name:    "system:serviceaccount:ns:sa",
		UID:     "uid-1",
		Groups:  []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"},
		Cluster: clusterA,
		Extra:   []string{string(clusterA)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("user (-want +got):\n%s", diff)
	}
}

// TestServiceAccountElsewhere pins the trap that upstream's token cache knows no
// cluster: once A has accepted its token, B would accept it from the cache.
func TestServiceAccountElsewhere(t *testing.T) {
	s := newServer(t, nil)
	token := s.token(t, request{})
	paths := map[string]int{
		"/clusters/" + string(clusterA) + "/api": http.StatusOK,
		"/clusters/" + string(clusterB) + "/api": http.StatusUnauthorized,
		"/clusters/*/api":                        http.StatusUnauthorized,
		"/clusters/system/api":                   http.StatusUnauthorized,
		"/api":                                   http.StatusUnauthorized,
		"/services/syncer/x":                     http.StatusOK,
		"/servicesx":                             http.StatusUnauthorized,
		// A workspace's own URL below /clusters/ is no virtual workspace.
		"/clusters/" + string(clusterB) + "/services/syncer/x": http.StatusUnauthorized,
	}
	check := func(when string) {
		for path, want := range paths {
			if got, _ := s.get(t, path, token); got != want {
				t.Errorf("%s: GET %s = %d, want %d", when, path, got, want)
			}
		}
	}
	check("first")
	before := s.objects.lookups.Load()
	check("with the token in the cache")
	if got := s.objects.lookups.Load() - before; got != 0 {
		t.Errorf("%d lookups with the token in the cache, want 0: the cache is not what this test exercises", got)
	}
	_, got := s.get(t, "/services/syncer/x", token)
	if diff := cmp.Diff(clusterA, got.Cluster); diff != "" {
		t.Errorf("cluster of the identity in a virtual workspace (-want +got):\n%s", diff)
	}
}

func TestServiceAccountTokenRefused(t *testing.T) {
	s := newServer(t, nil)
	other := &server{key: newKey(t)}
	plain, err := serviceaccount.JWTTokenGenerator(issuer, s.key)
	if err != nil {
		t.Fatal(err)
	}
	withClaim := func(private any) string {
		token, err := plain.GenerateToken(t.Context(), &jwt.Claims{
			Subject: "system:serviceaccount:ns:sa", Audience: jwt.Audience{issuer}, Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour)),
		}, private)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	account := map[string]any{"namespace": "ns", "serviceaccount": map[string]string{"name": "sa", "uid": "uid-1"}}
	podRef := func(uid types.UID) *core.Pod {
		return &core.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bound", UID: uid}}
	}
	secretRef := func(uid types.UID) *core.Secret {
		return &core.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bound", UID: uid}}
	}

	cases := map[string]struct {
		token   string
		cluster logicalcluster.Name // A when empty
		want    int
	}{
		"good":                        {token: s.token(t, request{}), want: http.StatusOK},
		"good, made by hand":          {token: withClaim(map[string]any{"kubernetes.io": account, "kcp.io/cluster": string(clusterA)}), want: http.StatusOK},
		"no cluster claim":            {token: withClaim(map[string]any{"kubernetes.io": account}), want: http.StatusUnauthorized},
		"empty cluster claim":         {token: withClaim(map[string]any{"kubernetes.io": account, "kcp.io/cluster": ""}), want: http.StatusUnauthorized},
		"wildcard claim, on wildcard": {token: withClaim(map[string]any{"kubernetes.io": account, "kcp.io/cluster": "*"}), cluster: "*", want: http.StatusUnauthorized},
		"forged claim, for B":         {token: forge(t, s.token(t, request{}), clusterB), cluster: clusterB, want: http.StatusUnauthorized},
		"another server's key":        {token: other.token(t, request{}), want: http.StatusUnauthorized},
		"expired":                     {token: s.token(t, request{seconds: -120}), want: http.StatusUnauthorized},
		"for another audience":        {token: s.token(t, request{audience: "vault"}), want: http.StatusUnauthorized},
		"account unknown":             {token: s.token(t, request{account: "gone", uid: "uid-1"}), want: http.StatusUnauthorized},
		"account recreated":           {token: s.token(t, request{account: "sa", uid: "uid-0"}), want: http.StatusUnauthorized},
		"bound to a pod":              {token: s.token(t, request{pod: podRef("uid-3")}), want: http.StatusOK},
		"bound to a pod that is gone": {token: s.token(t, request{pod: podRef("uid-0")}), want: http.StatusUnauthorized},
		"bound to a Secret":           {token: s.token(t, request{secret: secretRef("uid-2")}), want: http.StatusOK},
		"bound to a recreated Secret": {token: s.token(t, request{secret: secretRef("uid-0")}), want: http.StatusUnauthorized},
		"pod of the same name in B":   {token: s.token(t, request{cluster: clusterB, pod: podRef("uid-3")}), cluster: clusterB, want: http.StatusUnauthorized},
		"no token at all":             {token: "garbage", want: http.StatusUnauthorized},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.cluster == "" {
				tc.cluster = clusterA
			}
			if got, _ := s.get(t, "/clusters/"+string(tc.cluster)+"/api", tc.token); got != tc.want {
				t.Errorf("status = %d, want %d", got, tc.want)
			}
		})
	}
}

// forge changes the cluster in a token and keeps its signature.
func forge(t *testing.T, token string, cluster logicalcluster.Name) string {
	t.Helper()
	parts := strings.Split(token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{}
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(clusterA), claims["kcp.io/cluster"]); diff != "" {
		t.Fatalf("claim of the token (-want +got):\n%s", diff)
	}
	claims["kcp.io/cluster"] = cluster
	if payload, err = json.Marshal(claims); err != nil {
		t.Fatal(err)
	}
	parts[1] = base64.RawURLEncoding.EncodeToString(payload)
	return strings.Join(parts, ".")
}

func TestTokenGeneratorNeedsACluster(t *testing.T) {
	generator, err := authn.NewTokenGenerator(issuer, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, ctx := range map[string]context.Context{
		"none":     t.Context(),
		"wildcard": logicalcluster.WithCluster(t.Context(), logicalcluster.Wildcard),
	} {
		if token, err := generator.GenerateToken(ctx, &jwt.Claims{}, map[string]any{}); err == nil {
			t.Errorf("%s: got a token %q, want an error", name, token)
		}
	}
}

func TestAnonymous(t *testing.T) {
	for name, tc := range map[string]struct {
		enabled bool
		want    int
	}{
		"enabled":  {enabled: true, want: http.StatusOK},
		"disabled": {enabled: false, want: http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(c *authn.Config) { c.Anonymous = tc.enabled })
			status, got := s.get(t, "/clusters/"+string(clusterA)+"/api", "")
			if status != tc.want {
				t.Fatalf("status = %d, want %d", status, tc.want)
			}
			if tc.enabled && got.Name != user.Anonymous {
				t.Errorf("user = %q, want %q", got.Name, user.Anonymous)
			}
		})
	}
}

func TestClusterOf(t *testing.T) {
	for name, tc := range map[string]struct {
		user   user.Info
		want   logicalcluster.Name
		wantOK bool
	}{
		"service account": {
			user:   &user.DefaultInfo{Name: "system:serviceaccount:ns:sa", Extra: map[string][]string{authn.ClusterKey: {"aaaaaaaaaaaaaaaa"}}},
			want:   clusterA,
			wantOK: true,
		},
		"impersonated": {user: &user.DefaultInfo{Name: "system:serviceaccount:ns:sa"}},
		"two values":   {user: &user.DefaultInfo{Name: "system:serviceaccount:ns:sa", Extra: map[string][]string{authn.ClusterKey: {"a", "b"}}}},
		"a person":     {user: &user.DefaultInfo{Name: "oidc:alice", Extra: map[string][]string{authn.ClusterKey: {"aaaaaaaaaaaaaaaa"}}}},
	} {
		got, ok := authn.ClusterOf(tc.user)
		if ok != tc.wantOK || (ok && got != tc.want) {
			t.Errorf("%s: ClusterOf = %q, %v; want %q, %v", name, got, ok, tc.want, tc.wantOK)
		}
	}
}

func TestActsIn(t *testing.T) {
	account := func(extra map[string][]string) *user.DefaultInfo {
		return &user.DefaultInfo{Name: "system:serviceaccount:ns:sa", Groups: []string{"system:serviceaccounts"}, Extra: extra}
	}
	alice := &user.DefaultInfo{Name: "oidc:alice", Groups: []string{"oidc:dev"}}
	for name, tc := range map[string]struct {
		user user.Info
		// impersonatedIn is where the request impersonates; nowhere when empty.
		impersonatedIn logicalcluster.Name
		want           bool // in cluster A
	}{
		"a person":                              {user: alice, want: true},
		"a person impersonated in A":            {user: alice, impersonatedIn: clusterA, want: true},
		"a person impersonated in B":            {user: alice, impersonatedIn: clusterB},
		"a person impersonated by the server's": {user: alice, impersonatedIn: logicalcluster.System, want: true},
		"an account of A":                       {user: account(map[string][]string{authn.ClusterKey: {string(clusterA)}}), want: true},
		"the same-named one of B":               {user: account(map[string][]string{authn.ClusterKey: {string(clusterB)}})},
		"an account of nowhere":                 {user: account(nil)},
		"a group of accounts only":              {user: &user.DefaultInfo{Name: "bob", Groups: []string{"system:serviceaccounts:ns"}}},
	} {
		req := httptest.NewRequestWithContext(logicalcluster.WithCluster(t.Context(), tc.impersonatedIn), http.MethodGet, "/api", nil)
		if tc.impersonatedIn != "" {
			req.Header.Set("Impersonate-User", tc.user.GetName())
		}
		got := !tc.want
		authn.FilterImpersonation(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got = authn.ActsIn(r.Context(), tc.user, clusterA)
		})).ServeHTTP(httptest.NewRecorder(), req)
		if got != tc.want {
			t.Errorf("%s: ActsIn = %v, want %v", name, got, tc.want)
		}
	}
}

func TestWithLocalServiceAccounts(t *testing.T) {
	impersonated := &user.DefaultInfo{Name: "system:serviceaccount:ns:sa"}
	ofB := &user.DefaultInfo{Name: "system:serviceaccount:ns:sa", Extra: map[string][]string{authn.ClusterKey: {string(clusterB)}}}
	for name, tc := range map[string]struct {
		user    user.Info
		cluster logicalcluster.Name
		want    logicalcluster.Name
	}{
		"impersonated in A":            {user: impersonated, cluster: clusterA, want: clusterA},
		"impersonated outside":         {user: impersonated, cluster: logicalcluster.System},
		"impersonated on the wildcard": {user: impersonated, cluster: logicalcluster.Wildcard},
		"a token of B keeps its own":   {user: ofB, cluster: clusterA, want: clusterB},
		"a person gets none":           {user: &user.DefaultInfo{Name: "oidc:alice"}, cluster: clusterA},
	} {
		var got logicalcluster.Name
		handler := authn.WithLocalServiceAccounts(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			u, _ := genericrequest.UserFrom(r.Context())
			got, _ = authn.ClusterOf(u)
		}))
		ctx := genericrequest.WithUser(logicalcluster.WithCluster(t.Context(), tc.cluster), tc.user)
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/api", nil))
		if got != tc.want {
			t.Errorf("%s: cluster = %q, want %q", name, got, tc.want)
		}
	}
	if len(impersonated.Extra) != 0 {
		t.Errorf("the identity was changed in place: %v", impersonated.Extra)
	}
}
