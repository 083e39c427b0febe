package physical

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInCgroupOf(t *testing.T) {
	cases := map[string]struct {
		file string
		want bool
	}{
		"Version1":        {file: "4:memory:/elsewhere\n3:cpuset:/k8s.io/aaa\n", want: true},
		"Version2":        {file: "0::/k8s.io/bbb\n", want: true},
		"Below":           {file: "0::/k8s.io/bbb/init\n", want: true},
		"OfAnother":       {file: "0::/k8s.io/ccc\n"},
		"LongerName":      {file: "0::/k8s.io/aaaa\n"},
		"ParentOnly":      {file: "0::/k8s.io\n"},
		"NameOfHierarchy": {file: "1:name=aaa:/\n"},
		"Root":            {file: "0::/\n"},
		"Empty":           {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := inCgroupOf(tc.file, []string{"aaa", "bbb"}); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
			if inCgroupOf(tc.file, nil) {
				t.Error("without a container something is in one")
			}
		})
	}
}

// TestEmptyTerritory is about what must never happen: with nothing known about a
// cluster, every process would match an empty name.
func TestEmptyTerritory(t *testing.T) {
	pids, err := territory{tasks: filepath.Join(t.TempDir(), "tasks")}.pids()
	if err != nil {
		t.Fatal(err)
	}
	if len(pids) > 0 {
		t.Errorf("processes %v are taken for those of a cluster that was never started", pids)
	}
}

func TestRemoveCgroups(t *testing.T) {
	cases := map[string]struct {
		dirs []string
		want []string
	}{
		"Version1": {
			dirs: []string{"cpu/k8s.io/mine/init", "memory/k8s.io/mine", "memory/other"},
			want: []string{".", "cpu", "memory", "memory/other"},
		},
		"Version2": {
			dirs: []string{"k8s.io/mine", "system.slice"},
			want: []string{".", "system.slice"},
		},
		"SharedWithAnother": {
			dirs: []string{"cpu/k8s.io/mine", "cpu/k8s.io/theirs"},
			want: []string{".", "cpu", "cpu/k8s.io", "cpu/k8s.io/theirs"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, d := range tc.dirs {
				if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := removeCgroups(root, []string{"mine", "never-started"}); err != nil {
				t.Fatal(err)
			}
			got := []string{}
			err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
				if err != nil {
					return err
				}
				rel, err := filepath.Rel(root, path)
				got = append(got, rel)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("what is left (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLastLines(t *testing.T) {
	if diff := cmp.Diff("    b\n    c", lastLines("a\nb\nc\n\n", 2)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("    a", lastLines("a", 2)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
