package ingress

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPoints(t *testing.T) {
	got := points([]string{"192.0.2.1", "2001:db8::1", "gw.example.com"})
	want := []any{map[string]any{"ip": "192.0.2.1"}, map[string]any{"ip": "2001:db8::1"}, map[string]any{"hostname": "gw.example.com"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
}
