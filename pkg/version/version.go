// Package version tells what a binary of this project is.
package version

import (
	"runtime/debug"
)

// version is set by the Makefile with -ldflags -X.
var version = "v0.1.0-dev"

// Kubernetes is the release whose API types and registries are built in.
const Kubernetes = "v1.37.2"

// Info describes a binary.
type Info struct {
	Version    string `json:"version"`
	Kubernetes string `json:"kubernetes"`
	Go         string `json:"go"`
}

// Get returns this binary's description.
func Get() Info {
	info := Info{Version: version, Kubernetes: Kubernetes}
	if build, ok := debug.ReadBuildInfo(); ok {
		info.Go = build.GoVersion
	}
	return info
}
