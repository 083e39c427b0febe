package scheduling

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// Ancestor is a workspace in the line from a workspace up to root.
type Ancestor struct {
	Cluster logicalcluster.Name
	Path    logicalcluster.Path
}

// AncestorsOf pairs the names of a workspace's line (itself first) with their paths. A
// name without a path, as of a workspace that is just being deleted, keeps its name as
// path.
func AncestorsOf(names []logicalcluster.Name, path func(logicalcluster.Name) (logicalcluster.Path, bool)) []Ancestor {
	out := make([]Ancestor, 0, len(names))
	for _, name := range names {
		p, ok := path(name)
		if !ok {
			p = name.Path()
		}
		out = append(out, Ancestor{Cluster: name, Path: p})
	}
	return out
}

// EffectiveLocations returns the Locations that a workspace sees, sorted by name.
// ancestors starts with the workspace itself and goes up to root; list returns the
// Locations that stand in one cluster. Of two Locations with one name the nearest wins.
// A Location that is being deleted no longer counts, so that one of the same name
// further up shows again.
//
// Every returned Location is a copy that carries annotation kcp.io/path: the path of
// the workspace that owns it.
func EffectiveLocations(ancestors []Ancestor, list func(logicalcluster.Name) []*v1alpha1.Location) []*v1alpha1.Location {
	seen := map[string]bool{}
	var out []*v1alpha1.Location
	for _, ancestor := range ancestors {
		for _, location := range list(ancestor.Cluster) {
			if location.DeletionTimestamp != nil || seen[location.Name] {
				continue
			}
			seen[location.Name] = true
			annotated := location.DeepCopy()
			metav1.SetMetaDataAnnotation(&annotated.ObjectMeta, logicalcluster.PathAnnotationKey, string(ancestor.Path))
			out = append(out, annotated)
		}
	}
	slices.SortFunc(out, func(a, b *v1alpha1.Location) int { return strings.Compare(a.Name, b.Name) })
	return out
}
