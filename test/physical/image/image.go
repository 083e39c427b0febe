// Package image builds container images out of static executables,
// without a container engine, as archives of the kind "docker save" writes and
// containerd imports. The same input gives the same bytes.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"time"
)

// Image is an image of one executable, and of the tools that some want beside it.
type Image struct {
	// Name includes the tag.
	Name string
	// Path is the absolute path of the executable in the image; it is also the
	// entrypoint.
	Path string
	// Executable is its content.
	Executable []byte
	// Tools are further static executables, by absolute path. With any there is also a
	// /tmp, to which everybody may write.
	Tools map[string][]byte
	// Env is the environment, as NAME=value.
	Env []string
	// Architecture in Go's terms.
	Architecture string
}

// User is what the executables run as. It is a number so that no file in the
// image has to explain it, and so that Kubernetes can see it is not root.
const User = "65532:65532"

// epoch replaces all times.
var epoch = time.Unix(0, 0).UTC()

// config is the part of an image configuration that is used here; see the OCI
// image specification.
type config struct {
	Architecture string          `json:"architecture"`
	OS           string          `json:"os"`
	Created      time.Time       `json:"created"`
	Config       containerConfig `json:"config"`
	RootFS       rootFS          `json:"rootfs"`
}

type containerConfig struct {
	User       string
	Env        []string `json:",omitempty"`
	Entrypoint []string
	WorkingDir string
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// manifest is an element of manifest.json.
type manifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// Write writes an archive of images. Content they share is in there once.
func Write(w io.Writer, images ...Image) error {
	archive := tar.NewWriter(w)
	written := map[string]bool{}
	add := func(name string, content []byte) error {
		if written[name] {
			return nil
		}
		written[name] = true
		return addFile(archive, name, 0o644, content)
	}
	manifests := make([]manifest, 0, len(images))
	for _, img := range images {
		layer, err := img.layer()
		if err != nil {
			return err
		}
		cfg, err := img.config(layer)
		if err != nil {
			return err
		}
		m := manifest{Config: digest(cfg) + ".json", RepoTags: []string{img.Name}, Layers: []string{digest(layer) + ".tar"}}
		if err := add(m.Layers[0], layer); err != nil {
			return err
		}
		if err := add(m.Config, cfg); err != nil {
			return err
		}
		manifests = append(manifests, m)
	}
	data, err := json.Marshal(manifests)
	if err != nil {
		return fmt.Errorf("cannot encode image manifests: %w", err)
	}
	if err := add("manifest.json", data); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("cannot write image archive: %w", err)
	}
	return nil
}

// layer is the filesystem: the executables and the directories above them.
func (i Image) layer() ([]byte, error) {
	files := maps.Clone(i.Tools)
	if files == nil {
		files = map[string][]byte{}
	}
	files[i.Path] = i.Executable
	dirs := map[string]int64{}
	for file := range files {
		if !path.IsAbs(file) || path.Clean(file) != file {
			return nil, fmt.Errorf("image %q: path %q of an executable is not absolute and clean", i.Name, file)
		}
		for d := path.Dir(file); d != "/"; d = path.Dir(d) {
			dirs[d] = 0o755
		}
	}
	if len(i.Tools) > 0 {
		dirs["/tmp"] = 0o1777
	}
	buf := &bytes.Buffer{}
	layer := tar.NewWriter(buf)
	// Sorted, a directory comes before what is in it.
	for _, d := range slices.Sorted(maps.Keys(dirs)) {
		if err := layer.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d[1:] + "/", Mode: dirs[d], ModTime: epoch}); err != nil {
			return nil, fmt.Errorf("image %q: cannot write layer: %w", i.Name, err)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if err := addFile(layer, file[1:], 0o755, files[file]); err != nil {
			return nil, fmt.Errorf("image %q: %w", i.Name, err)
		}
	}
	if err := layer.Close(); err != nil {
		return nil, fmt.Errorf("image %q: cannot write layer: %w", i.Name, err)
	}
	return buf.Bytes(), nil
}

func (i Image) config(layer []byte) ([]byte, error) {
	data, err := json.Marshal(config{
		Architecture: i.Architecture,
		OS:           "linux",
		Created:      epoch,
		Config:       containerConfig{User: User, Env: i.Env, Entrypoint: []string{i.Path}, WorkingDir: "/"},
		RootFS:       rootFS{Type: "layers", DiffIDs: []string{"sha256:" + digest(layer)}},
	})
	if err != nil {
		return nil, fmt.Errorf("image %q: cannot encode configuration: %w", i.Name, err)
	}
	return data, nil
}

func addFile(w *tar.Writer, name string, mode int64, content []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: epoch}
	if err := w.WriteHeader(h); err != nil {
		return fmt.Errorf("cannot write %q: %w", name, err)
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("cannot write %q: %w", name, err)
	}
	return nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
