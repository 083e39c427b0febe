// Package crds embeds the generated CRD YAML of the product's own kinds.
package crds

import "embed"

// FS holds one <group>_<resource>.yaml file per kind.
//
//go:embed *.yaml
var FS embed.FS
