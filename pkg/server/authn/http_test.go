package authn_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/registry/rest"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/kubernetes/pkg/apis/authentication"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // registers Status
	authenticationrest "k8s.io/kubernetes/pkg/registry/authentication/rest"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/server/authn"
)

// TestTokenReview pins that a review knows where it is asked: upstream's makes up a
// request without a context.
func TestTokenReview(t *testing.T) {
	s := newServer(t, nil)
	auth, err := authn.New(t.Context(), authn.Config{
		ServiceAccounts: &authn.ServiceAccounts{Issuer: issuer, Keys: []any{s.key}, Getter: s.objects},
		Audiences:       authenticator.Audiences{issuer},
		ServicesPrefix:  "/services/",
	})
	if err != nil {
		t.Fatal(err)
	}
	enabled := serverstorage.NewResourceConfig()
	enabled.EnableVersions(authenticationv1.SchemeGroupVersion)
	info, err := authn.StorageProvider{RESTStorageProvider: authenticationrest.RESTStorageProvider{
		Authenticator: auth, APIAudiences: authenticator.Audiences{issuer},
	}}.NewRESTStorage(enabled, nil)
	if err != nil {
		t.Fatal(err)
	}
	reviews, ok := info.VersionedResourcesStorageMap["v1"]["tokenreviews"].(rest.Creater)
	if !ok {
		t.Fatalf("no tokenreviews in %v", info.VersionedResourcesStorageMap)
	}
	token := s.token(t, request{})
	for name, tc := range map[string]struct {
		cluster logicalcluster.Name
		want    bool
	}{
		"in its cluster":  {cluster: clusterA, want: true},
		"in another":      {cluster: clusterB, want: false},
		"in system":       {cluster: logicalcluster.System, want: false},
		"on the wildcard": {cluster: logicalcluster.Wildcard, want: false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := logicalcluster.WithCluster(t.Context(), tc.cluster)
			obj, err := reviews.Create(ctx, &authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: token}}, nil, &metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			status := obj.(*authentication.TokenReview).Status
			if status.Authenticated != tc.want {
				t.Errorf("authenticated = %v (%s), want %v", status.Authenticated, status.Error, tc.want)
			}
			wantUser := ""
			if tc.want {
				wantUser = "system:serviceaccount:ns:sa"
			}
			if diff := cmp.Diff(wantUser, status.User.Username); diff != "" {
				t.Errorf("user (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := reviews.Create(context.WithoutCancel(t.Context()), &authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: token}}, nil, &metav1.CreateOptions{}); err == nil {
		t.Errorf("a review without a cluster succeeded")
	}
}

func TestFilterImpersonation(t *testing.T) {
	handler := authn.FilterImpersonation(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	for header, want := range map[string]int{
		"Impersonate-User":         http.StatusNoContent,
		"Impersonate-Extra-scopes": http.StatusNoContent,
		"Impersonate-Extra-authentication.kcp.io%2fcluster-name":   http.StatusForbidden,
		"Impersonate-Extra-Authentication.KCP.io%2FIssuer":         http.StatusForbidden,
		"Impersonate-Extra-%61uthentication.kcp.io%2fcluster-name": http.StatusForbidden,
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", nil)
		req.Header.Set(header, "aaaaaaaaaaaaaaaa")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		if w.Code != want {
			t.Errorf("%s: %d, want %d", header, w.Code, want)
		}
		if want == http.StatusForbidden && !strings.Contains(w.Body.String(), "set by the server only") {
			t.Errorf("%s: message %q does not say why", header, w.Body.String())
		}
	}
}

func TestLoginHandler(t *testing.T) {
	doc := &authn.LoginDocument{
		Issuer:   "https://kcp.example.com:6443/idp",
		ClientID: "kcp",
		Scopes:   []string{"openid", "email", "groups", "offline_access"},
		Server:   "https://kcp.example.com:6443",
	}
	serve := func(method string, doc *authn.LoginDocument) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		authn.NewLoginHandler(doc).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, authn.LoginPath, nil))
		return w
	}
	w := serve(http.MethodGet, doc)
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"issuer":   "https://kcp.example.com:6443/idp",
		"clientID": "kcp",
		"scopes":   []any{"openid", "email", "groups", "offline_access"},
		"server":   "https://kcp.example.com:6443",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
	if got := serve(http.MethodGet, nil).Code; got != http.StatusNotFound {
		t.Errorf("without a login: %d, want 404", got)
	}
	if got := serve(http.MethodPost, doc).Code; got != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d, want 405", got)
	}
}
