package cli_test

import (
	"io"
	"net/http"
)

// preview answers what the switch "preview" holds; "preview-force" when forced.
func (f *fake) preview(w http.ResponseWriter, r *http.Request) {
	name := "preview"
	if r.URL.Query().Get("force") == "true" {
		name = "preview-force"
	}
	if want := "/services/drain/" + idOf("root:compute") + "/a"; r.URL.Path != want {
		status(w, http.StatusForbidden, "Forbidden", "asked at "+r.URL.Path+", not "+want)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, f.switches[name])
}
