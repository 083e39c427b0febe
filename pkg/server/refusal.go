package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// withReadableRefusals answers a client that may not have the list of API groups, or the
// schemas, in plain text. Every kubectl command begins by asking for one of them, so this
// is where a person meets a workspace that is closed to them; and client-go shows a refusal
// there in full only if it is text: of a Status it makes "Forbidden: unknown". Other
// clients, which do not ask for the list in discovery's own form, get the Status as always.
func withReadableRefusals(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !discovers(req) {
			next.ServeHTTP(w, req)
			return
		}
		r := &refusal{ResponseWriter: w}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(r), req)
		r.finish()
	})
}

func discovers(req *http.Request) bool {
	switch req.URL.Path {
	case "/api", "/apis":
		return strings.Contains(req.Header.Get("Accept"), "as=APIGroupDiscoveryList")
	}
	return strings.HasPrefix(req.URL.Path, "/openapi/")
}

// refusal is a response that is held back if it is a refusal.
type refusal struct {
	http.ResponseWriter
	refused bool
	body    bytes.Buffer
}

// Unwrap makes it a responsewriter.UserProvidedDecorator.
func (r *refusal) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *refusal) WriteHeader(code int) {
	if r.refused = code == http.StatusForbidden; !r.refused {
		r.ResponseWriter.WriteHeader(code)
	}
}

func (r *refusal) Write(data []byte) (int, error) {
	if r.refused {
		return r.body.Write(data)
	}
	return r.ResponseWriter.Write(data)
}

func (r *refusal) finish() {
	if !r.refused {
		return
	}
	text := r.body.Bytes()
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		text = []byte(status.Message)
		r.Header().Set("Content-Type", "text/plain; charset=utf-8")
		r.Header().Del("Content-Length")
	}
	r.ResponseWriter.WriteHeader(http.StatusForbidden)
	_, _ = r.ResponseWriter.Write(text) // a client that went away needs no answer
}
