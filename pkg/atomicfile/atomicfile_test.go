package atomicfile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/13eedeaf/kcp/pkg/atomicfile"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("old and longer"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(path, []byte("new"), 0o600); err != nil {
		t.Fatalf("Write: %v", err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("new", string(got)); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, want 0600", info.Mode().Perm())
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("directory holds %d files, want only the written one", len(entries))
	}
}

func TestWriteLeavesNothingBehindOnError(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	// A directory in the place of the file cannot be renamed over.
	if err := os.MkdirAll(filepath.Join(path, "child"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(path, []byte("new"), 0o600); err == nil {
		t.Fatal("Write over a directory succeeded, want an error")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("directory holds %d entries, want no temporary file left", len(entries))
	}
}

func TestWriteIfChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for i, tc := range []struct {
		data string
		mode os.FileMode
		want bool
	}{
		{data: "a", mode: 0o600, want: true},
		{data: "a", mode: 0o600, want: false},
		{data: "b", mode: 0o600, want: true},
		{data: "b", mode: 0o644, want: true},
	} {
		got, err := atomicfile.WriteIfChanged(path, []byte(tc.data), tc.mode)
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if got != tc.want {
			t.Errorf("step %d: wrote = %v, want %v", i, got, tc.want)
		}
	}
}

// TestWriteFails pins that an error names the file that was asked for, and no other.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	full := filepath.Join(dir, "full")
	if err := os.MkdirAll(filepath.Join(full, "something"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		path string
		want string
		is   error
	}{
		"no directory":         {filepath.Join(dir, "none", "file"), "no such file or directory", fs.ErrNotExist},
		"a directory is there": {full, "file exists", fs.ErrExist},
	} {
		t.Run(name, func(t *testing.T) {
			err := atomicfile.Write(tc.path, []byte("new"), 0o600)
			if want := fmt.Sprintf("cannot write %q: %s", tc.path, tc.want); err == nil || err.Error() != want || !errors.Is(err, tc.is) {
				t.Errorf("error is %v, want %q", err, want)
			}
		})
	}
}
