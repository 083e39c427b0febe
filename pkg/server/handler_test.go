package server

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// TestPublicIsBounded: what needs no authentication cannot take up the server, and
// leaves everything else alone.
func TestPublicIsBounded(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	public := http.NewServeMux()
	public.HandleFunc("/idp/", func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	})
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	handler := withPublic(next, public, &genericapiserver.Config{
		LongRunningFunc:     longRunning(),
		RequestInfoResolver: &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
	})
	ask := func(path string) int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return w.Code
	}

	var asking sync.WaitGroup
	for range publicInFlight {
		asking.Go(func() {
			if code := ask("/idp/login"); code != http.StatusOK {
				t.Errorf("a request within the bound: %d, want 200", code)
			}
		})
		<-entered
	}
	if code := ask("/idp/login"); code != http.StatusTooManyRequests {
		t.Errorf("a request above the bound: %d, want 429", code)
	}
	if code := ask("/clusters/root/api"); code != http.StatusNoContent {
		t.Errorf("a request for something else: %d, want 204", code)
	}
	close(leave)
	asking.Wait()
}
