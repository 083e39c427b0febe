package physical

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/13eedeaf/kcp/test/physical/image"
)

const imagesFile = "images.tar"

// busybox is, under the name of one of its tools, that tool. kubectl cp wants a tar in the
// container.
const busybox = "/bin/busybox"

// readStatic returns an executable that needs no libraries.
func readStatic(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%q: %w", path, err)
	}
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("%q needs libraries", path)
		}
	}
	return data, nil
}

func (f *Fixture) imagesPath() string { return filepath.Join(f.opts.Dir, imagesFile) }

// buildImages writes the archive that every cluster imports.
func (f *Fixture) buildImages() error {
	app, err := os.ReadFile(filepath.Join(f.opts.BinDir, "demoapp"))
	if err != nil {
		return fmt.Errorf("cannot build image: %w", err)
	}
	pause, err := os.ReadFile(filepath.Join(f.opts.BinDir, "pause"))
	if err != nil {
		return fmt.Errorf("cannot build image: %w", err)
	}
	tar, err := readStatic(busybox)
	if err != nil {
		return fmt.Errorf("cannot build image: %w", err)
	}
	appImage := func(name, version string) image.Image {
		return image.Image{Name: name, Path: "/demoapp", Executable: app, Tools: map[string][]byte{"/bin/tar": tar}, Env: []string{"DEMO_VERSION=" + version}, Architecture: runtime.GOARCH}
	}
	archive := &bytes.Buffer{}
	err = image.Write(archive,
		image.Image{Name: pauseImage, Path: "/pause", Executable: pause, Architecture: runtime.GOARCH},
		appImage(AppImageV1, "v1"),
		appImage(AppImageV2, "v2"),
	)
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.imagesPath(), archive.Bytes(), 0o644); err != nil {
		return fmt.Errorf("cannot store images: %w", err)
	}
	return nil
}
