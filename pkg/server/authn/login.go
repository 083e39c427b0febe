package authn

import (
	"encoding/json"
	"net/http"

	"k8s.io/klog/v2"
)

// LoginPath is where the server publishes its LoginDocument, without authentication.
const LoginPath = "/.well-known/kcp-login.json"

// LoginDocument tells `kubectl kcp login` where to sign in, so that the server's URL is
// all that one has to know.
type LoginDocument struct {
	// Issuer is the OpenID issuer's URL, ClientID a public client there.
	Issuer   string   `json:"issuer"`
	ClientID string   `json:"clientID"`
	Scopes   []string `json:"scopes"`
	// Server is the URL of the server itself, without a path.
	Server string `json:"server"`
}

// NewLoginHandler serves the document; nil means that no login is configured, which is
// 404.
func NewLoginHandler(doc *LoginDocument) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if doc == nil {
			http.Error(w, "this server has no login configured", http.StatusNotFound)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if err := json.NewEncoder(w).Encode(doc); err != nil {
			klog.FromContext(r.Context()).V(4).Info("Login document not sent", "err", err)
		}
	})
}
