package physical

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/13eedeaf/kcp/test/physical/image"
)

const imagesFile = "images.tar"

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
	appImage := func(name, version string) image.Image {
		return image.Image{Name: name, Path: "/demoapp", Executable: app, Env: []string{"DEMO_VERSION=" + version}, Architecture: runtime.GOARCH}
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
