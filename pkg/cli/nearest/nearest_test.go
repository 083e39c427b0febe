package nearest

import "testing"

func TestTo(t *testing.T) {
	names := []string{"us-east1", "us-west1", "compute", "org"}
	for name, tc := range map[string]struct{ typed, want string }{
		"letters swapped":      {"us-esat1", "us-east1"},
		"one letter missing":   {"us-wst1", "us-west1"},
		"beginning":            {"comp", "compute"},
		"too long":             {"compute-eu", "compute"},
		"short, one letter":    {"orq", "org"},
		"short, two letters":   {"oxx", ""},
		"nothing like it":      {"database", ""},
		"the name itself":      {"org", "org"},
		"empty matches nobody": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := To(tc.typed, names); got != tc.want {
				t.Errorf("To(%q) = %q, want %q", tc.typed, got, tc.want)
			}
		})
	}
}
