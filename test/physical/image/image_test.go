package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type entry struct {
	Mode    int64
	Dir     bool
	Content string
	Time    time.Time
	UID     int
}

func read(t *testing.T, archive []byte) map[string]entry {
	t.Helper()
	entries := map[string]entry{}
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatalf("cannot read archive: %v", err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("cannot read %q: %v", h.Name, err)
		}
		if _, twice := entries[h.Name]; twice {
			t.Errorf("%q is in the archive twice", h.Name)
		}
		entries[h.Name] = entry{Mode: h.Mode, Dir: h.Typeflag == tar.TypeDir, Content: string(content), Time: h.ModTime.UTC(), UID: h.Uid}
	}
}

func sum(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:])
}

func TestTools(t *testing.T) {
	archive := &bytes.Buffer{}
	img := Image{Name: "demo.local/app:v1", Path: "/app", Executable: []byte("the app"), Tools: map[string][]byte{"/bin/tar": []byte("tar")}}
	if err := Write(archive, img); err != nil {
		t.Fatal(err)
	}
	var manifests []manifest
	entries := read(t, archive.Bytes())
	if err := json.Unmarshal([]byte(entries["manifest.json"].Content), &manifests); err != nil {
		t.Fatalf("manifest.json: %v", err)
	}
	want := map[string]entry{
		"bin/":    {Mode: 0o755, Dir: true, Time: epoch},
		"tmp/":    {Mode: 0o1777, Dir: true, Time: epoch},
		"bin/tar": {Mode: 0o755, Content: "tar", Time: epoch},
		"app":     {Mode: 0o755, Content: "the app", Time: epoch},
	}
	if diff := cmp.Diff(want, read(t, []byte(entries[manifests[0].Layers[0]].Content))); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}
	img.Tools = map[string][]byte{"bin/tar": nil}
	if err := Write(&bytes.Buffer{}, img); err == nil {
		t.Error("a tool at a relative path is taken")
	}
}

func TestWrite(t *testing.T) {
	v1 := Image{Name: "demo.local/app:v1", Path: "/usr/bin/app", Executable: []byte("the app"), Env: []string{"DEMO_VERSION=v1"}, Architecture: "amd64"}
	v2 := v1
	v2.Name, v2.Env = "demo.local/app:v2", []string{"DEMO_VERSION=v2"}
	archive := &bytes.Buffer{}
	if err := Write(archive, v1, v2); err != nil {
		t.Fatal(err)
	}
	entries := read(t, archive.Bytes())

	var manifests []manifest
	if err := json.Unmarshal([]byte(entries["manifest.json"].Content), &manifests); err != nil {
		t.Fatalf("manifest.json: %v", err)
	}
	if len(manifests) != 2 {
		t.Fatalf("got %d manifests, want 2", len(manifests))
	}
	if diff := cmp.Diff(manifests[0].Layers, manifests[1].Layers); diff != "" {
		t.Errorf("images with the same executable do not share their layer:\n%s", diff)
	}
	// The manifest, two configurations and one layer.
	if len(entries) != 4 {
		t.Errorf("got %d files in the archive, want 4", len(entries))
	}
	for i, img := range []Image{v1, v2} {
		m := manifests[i]
		if diff := cmp.Diff([]string{img.Name}, m.RepoTags); diff != "" {
			t.Errorf("tags:\n%s", diff)
		}
		layer := entries[m.Layers[0]].Content
		cfg := entries[m.Config].Content
		if want := sum(cfg) + ".json"; m.Config != want {
			t.Errorf("configuration is called %q, want its digest %q", m.Config, want)
		}
		var got config
		if err := json.Unmarshal([]byte(cfg), &got); err != nil {
			t.Fatalf("configuration of %q: %v", img.Name, err)
		}
		want := config{
			Architecture: "amd64", OS: "linux", Created: time.Unix(0, 0).UTC(),
			Config: containerConfig{User: "65532:65532", Env: img.Env, Entrypoint: []string{"/usr/bin/app"}, WorkingDir: "/"},
			RootFS: rootFS{Type: "layers", DiffIDs: []string{"sha256:" + sum(layer)}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("configuration of %q (-want +got):\n%s", img.Name, diff)
		}
		files := map[string]entry{
			"usr/":        {Mode: 0o755, Dir: true, Time: time.Unix(0, 0).UTC()},
			"usr/bin/":    {Mode: 0o755, Dir: true, Time: time.Unix(0, 0).UTC()},
			"usr/bin/app": {Mode: 0o755, Content: "the app", Time: time.Unix(0, 0).UTC()},
		}
		if diff := cmp.Diff(files, read(t, []byte(layer))); diff != "" {
			t.Errorf("layer of %q (-want +got):\n%s", img.Name, diff)
		}
	}
}

func TestWriteIsDeterministic(t *testing.T) {
	img := Image{Name: "demo.local/app:v1", Path: "/app", Executable: []byte("the app"), Architecture: "amd64"}
	first, second := &bytes.Buffer{}, &bytes.Buffer{}
	for _, b := range []*bytes.Buffer{first, second} {
		if err := Write(b, img); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same image gave different archives")
	}
}

func TestWriteRefusesPath(t *testing.T) {
	for _, path := range []string{"", "app", "/a/../app", "/app/"} {
		if err := Write(io.Discard, Image{Name: "x", Path: path}); err == nil {
			t.Errorf("path %q was accepted", path)
		}
	}
}
