package scheduling

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

func location(name, description string) *v1alpha1.Location {
	return &v1alpha1.Location{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.LocationSpec{Description: description},
	}
}

func TestEffectiveLocations(t *testing.T) {
	now := metav1.Now()
	deleting := location("default", "team's, going")
	deleting.DeletionTimestamp = &now

	tests := map[string]struct {
		line  []logicalcluster.Name
		world map[logicalcluster.Name][]*v1alpha1.Location
		want  []string
	}{
		"inherited from root": {
			line:  []logicalcluster.Name{"team", "org", "root"},
			world: map[logicalcluster.Name][]*v1alpha1.Location{"root": {location("default", "root's")}},
			want:  []string{"default root's @root"},
		},
		"the nearest of a name wins": {
			line: []logicalcluster.Name{"team", "org", "root"},
			world: map[logicalcluster.Name][]*v1alpha1.Location{
				"root": {location("default", "root's"), location("gpu", "root's")},
				"org":  {location("default", "org's")},
			},
			want: []string{"default org's @root:org", "gpu root's @root"},
		},
		"siblings' Locations are not seen": {
			line:  []logicalcluster.Name{"team", "root"},
			world: map[logicalcluster.Name][]*v1alpha1.Location{"other": {location("default", "other's")}},
		},
		"one that is being deleted no longer hides": {
			line: []logicalcluster.Name{"team", "root"},
			world: map[logicalcluster.Name][]*v1alpha1.Location{
				"team": {deleting},
				"root": {location("default", "root's")},
			},
			want: []string{"default root's @root"},
		},
	}
	paths := map[logicalcluster.Name]logicalcluster.Path{"root": "root", "org": "root:org", "team": "root:org:team"}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ancestors := AncestorsOf(tc.line, func(n logicalcluster.Name) (logicalcluster.Path, bool) {
				p, ok := paths[n]
				return p, ok
			})
			var got []string
			for _, l := range EffectiveLocations(ancestors, func(n logicalcluster.Name) []*v1alpha1.Location { return tc.world[n] }) {
				got = append(got, l.Name+" "+l.Spec.Description+" @"+l.Annotations[logicalcluster.PathAnnotationKey])
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("effective Locations (-want +got):\n%s", diff)
			}
			for _, locations := range tc.world {
				for _, l := range locations {
					if l.Annotations != nil {
						t.Errorf("Location %q in the store was changed: %v", l.Name, l.Annotations)
					}
				}
			}
		})
	}
}
