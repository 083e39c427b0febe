package scheduling

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
)

// BenchmarkDecide decides for a new namespace among 10,000 targets in 1,000 Locations.
func BenchmarkDecide(b *testing.B) {
	targets := map[string]*Target{}
	var locations []*Location
	for i := range 1000 {
		var own []*Target
		for j := range 10 {
			t := &Target{Key: fmt.Sprintf("t%d-%d", i, j), Ready: true, MilliCPU: int64(1000 * (j + 1))}
			own = append(own, t)
			targets[t.Key] = t
		}
		locations = append(locations, NewLocation(&v1alpha1.Location{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("l%04d", i)}}, "root", own, ""))
	}
	in := Input{
		Cluster: "c", Namespace: "web", Placement: &v1alpha1.Placement{}, Locations: locations, Now: start,
		Target:     func(key string) *Target { return targets[key] },
		Namespaces: func(string) int { return 3 },
	}
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if len(Decide(in).Desired) != 1 {
				b.Fatal("no decision")
			}
		}
	})
	in.Current = []Current{{Target: "t500-5", Serving: true}}
	b.Run("kept", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !Decide(in).Desires("t500-5") {
				b.Fatal("not kept")
			}
		}
	})
}
