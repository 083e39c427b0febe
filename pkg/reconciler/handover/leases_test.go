package handover

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/steady"
)

// clocks are a wall clock that is set and one that is not.
type clocks struct {
	wall, real *clocktesting.FakePassiveClock
}

func newClocks() *clocks {
	return &clocks{clocktesting.NewFakePassiveClock(now), clocktesting.NewFakePassiveClock(now)}
}

func (c *clocks) steady() steady.Clock { return steady.Clock{Wall: c.wall, Steady: c.real} }

func (c *clocks) pass(d time.Duration) {
	c.real.SetTime(c.real.Now().Add(d))
	c.jump(d)
}

func (c *clocks) jump(d time.Duration) { c.wall.SetTime(c.wall.Now().Add(d)) }

// TestLeases has a gateway with a lease of 15 s and looks at it as handovers do.
func TestLeases(t *testing.T) {
	const lease = 15 * time.Second
	instance := func(renewed time.Time) *networkingv1alpha1.GatewayInstance {
		return &networkingv1alpha1.GatewayInstance{
			ObjectMeta: metav1.ObjectMeta{Name: "g", Annotations: map[string]string{logicalcluster.AnnotationKey: "root"}},
			Spec:       networkingv1alpha1.GatewayInstanceSpec{RenewTime: metav1.NewMicroTime(renewed), LeaseDurationSeconds: int32(lease / time.Second)},
		}
	}
	type event = informer.Event[*networkingv1alpha1.GatewayInstance]
	tests := map[string]struct {
		// found is when the lease was renewed that the server finds at its start, by the
		// gateway's clock.
		found time.Duration
		do    func(c *clocks, renew func())
		// deaf is true when the server hears nobody.
		deaf bool
		want standing
	}{
		"renewed":                      {0, func(*clocks, func()) {}, false, standing{leaseLive, lease}},
		"some time passes":             {0, func(c *clocks, _ func()) { c.pass(10 * time.Second) }, false, standing{leaseLive, 5 * time.Second}},
		"not renewed":                  {0, func(c *clocks, _ func()) { c.pass(lease) }, false, standing{leaseInGrace, GatewayGrace}},
		"nor in its grace":             {0, func(c *clocks, _ func()) { c.pass(lease + GatewayGrace) }, false, standing{leaseGone, 0}},
		"the clock jumps forward":      {0, func(c *clocks, _ func()) { c.pass(time.Second); c.jump(time.Hour) }, false, standing{leaseLive, lease - time.Second}},
		"the clock jumps back":         {0, func(c *clocks, _ func()) { c.jump(-time.Hour); c.pass(lease + GatewayGrace) }, false, standing{leaseGone, 0}},
		"its own clock is slow":        {0, func(c *clocks, renew func()) { c.jump(time.Hour); c.pass(5 * time.Second); renew() }, false, standing{leaseLive, lease}},
		"found with its lease run out": {-time.Hour, func(*clocks, func()) {}, false, standing{leaseInGrace, GatewayGrace}},
		"and it does not come back":    {-time.Hour, func(c *clocks, _ func()) { c.pass(GatewayGrace) }, false, standing{leaseGone, 0}},
		"and it does":                  {-time.Hour, func(c *clocks, renew func()) { c.pass(GatewayGrace); renew() }, false, standing{leaseLive, lease}},
		"its clock is fast":            {time.Hour, func(c *clocks, _ func()) { c.pass(lease + GatewayGrace) }, false, standing{leaseGone, 0}},
		"nobody is heard":              {0, func(c *clocks, _ func()) { c.pass(time.Hour) }, true, standing{leaseLive, lease}},
		"nobody, and it was gone":      {-time.Hour, func(c *clocks, _ func()) { c.pass(time.Hour) }, true, standing{leaseGone, 0}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newClocks()
			l := &Leases{
				hearingSince: func(at time.Time) time.Time {
					if tc.deaf {
						return at
					}
					return time.Time{}
				},
				renewed: steady.Signs[logicalcluster.Key]{Clock: c.steady()}, expired: steady.Signs[logicalcluster.Key]{Clock: c.steady()},
			}
			g := instance(now.Add(tc.found))
			key := logicalcluster.KeyOf(g)
			l.handle(event{Key: key, New: g, Added: true})
			tc.do(c, func() {
				old := g
				// Its own clock has moved by a second.
				g = instance(old.Spec.RenewTime.Add(time.Second))
				l.handle(event{Key: key, Old: old, New: g})
			})
			at := c.wall.Now()
			got, until := leaseOf(l.At(at, g), at)
			var left time.Duration
			if !until.IsZero() {
				left = until.Sub(at)
			}
			if (standing{got, left}) != tc.want {
				t.Errorf("the lease is %+v, want %+v", standing{got, left}, tc.want)
			}
		})
	}
}

// standing is how a gateway counts and for how long.
type standing struct {
	lease
	left time.Duration
}

// TestDeadlines: streams get the time that they were promised, and not more.
func TestDeadlines(t *testing.T) {
	tests := map[string]struct {
		do       func(c *clocks, look func())
		wantLeft time.Duration
	}{
		"nothing happens":                  {func(*clocks, func()) {}, time.Minute},
		"time passes":                      {func(c *clocks, look func()) { look(); c.pass(59 * time.Second) }, time.Second},
		"the clock jumps forward":          {func(c *clocks, look func()) { look(); c.jump(time.Hour) }, time.Minute},
		"the clock jumps back":             {func(c *clocks, look func()) { look(); c.jump(-time.Hour); c.pass(50 * time.Second) }, 10 * time.Second},
		"back while the server was away":   {func(c *clocks, look func()) { c.jump(-time.Hour); look() }, time.Minute + 2*time.Second},
		"passed while the server was away": {func(c *clocks, look func()) { c.pass(2 * time.Minute); look() }, -time.Minute},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newClocks()
			d := &deadlines{steady.Signs[drainEnd]{Clock: c.steady()}}
			a := &schedulingv1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{UID: "a"}}
			a.Spec.DrainingSince = new(metav1.NewMicroTime(now.Add(-2 * time.Second)))
			a.Spec.DrainDeadline = new(metav1.NewMicroTime(now.Add(time.Minute)))
			tc.do(c, func() { d.at(a, c.wall.Now()) })
			if left := d.at(a, c.wall.Now()).Sub(c.wall.Now()); left != tc.wantLeft {
				t.Errorf("%s are left, want %s", left, tc.wantLeft)
			}
			d.forget(a)
		})
	}
}
