// Package atomicfile writes small files so that a reader, or a process that was killed
// half-way, sees either the old content or the new one and never a mixture.
package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces path with data: a temporary file in the same directory is written,
// synced and renamed over it. The file gets the given mode whatever the umask and the
// mode of a file that it replaces. The directory must exist.
func Write(path string, data []byte, mode fs.FileMode) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return failed(path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name()) // best effort: absent after a rename
			err = failed(path, err)
		}
	}()
	_, writeErr := tmp.Write(data)
	if err := errors.Join(writeErr, tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	// Without this the rename itself may be lost in a power cut.
	return syncDir(dir)
}

// failed says of which file something cannot be done: the temporary one means nothing to
// anybody.
func failed(path string, err error) error {
	if op, ok := errors.AsType[*fs.PathError](err); ok {
		err = op.Err
	}
	if op, ok := errors.AsType[*os.LinkError](err); ok {
		err = op.Err
	}
	return fmt.Errorf("cannot write %q: %w", path, err)
}

// WriteIfChanged is Write, except that nothing is written when path already holds data
// with the given mode. It reports whether it wrote.
func WriteIfChanged(path string, data []byte, mode fs.FileMode) (bool, error) {
	info, statErr := os.Stat(path)
	old, readErr := os.ReadFile(path)
	if statErr == nil && readErr == nil && info.Mode().Perm() == mode && bytes.Equal(old, data) {
		return false, nil
	}
	return true, Write(path, data, mode)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
