package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/13eedeaf/kcp/pkg/version"
)

// TestLesson28RefusedForItsVersion: an operator sees a pod that does not stay up, and in its
// log one line that says why.
func TestLesson28RefusedForItsVersion(t *testing.T) {
	const message = "The syncer is older than this server supports."
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if peer, err := version.PeerOf(r.Header); err != nil || peer != version.Self() {
			t.Errorf("the syncer tells %+v, %v; want %+v", peer, err, version.Self())
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusBadRequest,
			Reason: metav1.StatusReasonBadRequest, Message: message,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: version.SkewCause}}},
		})
	}))
	defer server.Close()
	kubeconfig := func(url string) string {
		config := clientcmdapi.NewConfig()
		config.Clusters["c"] = &clientcmdapi.Cluster{Server: url}
		config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
		config.CurrentContext = "c"
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := clientcmd.WriteToFile(*config, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// It guards against a syncer that does not end.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var stderr bytes.Buffer
	code := run(ctx, []string{
		"--from-kubeconfig", kubeconfig(server.URL), "--to-kubeconfig", kubeconfig("http://127.0.0.1:1"),
		"--sync-target-name", "us-east1", "--sync-target-uid", "u", "--sync-target-cluster", "compute", "--leader-elect=false",
	}, &stderr)
	if want := "error: the server refuses this syncer: " + message + "\n"; code != 1 || stderr.String() != want {
		t.Errorf("exit code %d, stderr %q; want 1, %q", code, stderr.String(), want)
	}
}
