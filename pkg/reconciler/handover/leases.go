package handover

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/informer"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/steady"
)

// Leases shows gateways with their leases as the server has seen them renewed. A gateway's
// clock and the server's differ, and either may be set: a lease that had run out by their
// difference would let an old copy go to which the gateway still sends. So would one that
// nobody could renew, because the server did not run or could not write.
type Leases struct {
	instances *informer.Informer[*networkingv1alpha1.GatewayInstance]
	// hearingSince is the instant from which silence counts (Fleet.HearingSince).
	hearingSince func(now time.Time) time.Time
	// renewed has when leases were; expired has those that were found to have run out.
	renewed, expired steady.Signs[logicalcluster.Key]
	changed          []func()
}

// NewLeases returns Leases that follow an informer. Call it before any controller that uses
// them is made, and before the informer starts.
func NewLeases(instances *informer.Informer[*networkingv1alpha1.GatewayInstance], hearingSince func(now time.Time) time.Time, c steady.Clock) *Leases {
	l := &Leases{
		instances: instances, hearingSince: hearingSince,
		renewed: steady.Signs[logicalcluster.Key]{Clock: c}, expired: steady.Signs[logicalcluster.Key]{Clock: c},
	}
	instances.AddHandler(l.handle)
	return l
}

// OnChange registers a function to be called when a gateway has come, has gone or has
// renewed a lease that had run out. Register before the informer starts.
func (l *Leases) OnChange(fn func()) { l.changed = append(l.changed, fn) }

func (l *Leases) handle(e informer.Event[*networkingv1alpha1.GatewayInstance]) {
	now := l.renewed.Clock.Wall.Now()
	switch {
	case e.Deleted:
		l.renewed.Forget(e.Key)
		l.expired.Forget(e.Key)
	case e.Added:
		// Of what was renewed before the server looked the difference of two clocks is all
		// there is. It is not trusted so far as to give up a gateway without its grace.
		if now.Before(LeaseExpiry(e.New)) {
			l.renewed.Saw(e.Key, max(now.Sub(e.New.Spec.RenewTime.Time), 0))
		} else {
			l.expired.Saw(e.Key, duration(e.New))
		}
	case e.Old.Spec.RenewTime.Equal(&e.New.Spec.RenewTime):
		return
	default:
		inTime := now.Before(LeaseExpiry(l.At(now, e.Old)))
		l.renewed.Saw(e.Key, 0)
		l.expired.Forget(e.Key)
		if inTime {
			return
		}
	}
	for _, fn := range l.changed {
		fn()
	}
}

// At returns a gateway with the instant of its last renewal as the server saw it, by the wall
// clock as it shows now.
func (l *Leases) At(now time.Time, g *networkingv1alpha1.GatewayInstance) *networkingv1alpha1.GatewayInstance {
	key := logicalcluster.KeyOf(g)
	at, ok := l.expired.Last(key, now)
	if !ok {
		if at, ok = l.renewed.Last(key, now); !ok {
			return g
		}
		if since := l.hearingSince(now); at.Before(since) {
			at = since
		}
	}
	seen := *g
	seen.Spec.RenewTime = metav1.NewMicroTime(at)
	return &seen
}

// List returns all gateways, as At does.
func (l *Leases) List(now time.Time) []*networkingv1alpha1.GatewayInstance {
	out := l.instances.List()
	for i, g := range out {
		out[i] = l.At(now, g)
	}
	return out
}

// deadlines remembers when the deadlines of drains end, so that streams get the time that
// they were promised though the clock is set meanwhile.
type deadlines struct{ ends steady.Signs[drainEnd] }

// drainEnd is a deadline that was set for an Assignment.
type drainEnd struct {
	assignment types.UID
	at         int64
}

func newDeadlines(wall clock.PassiveClock) *deadlines {
	return &deadlines{steady.Signs[drainEnd]{Clock: steady.New(wall)}}
}

func keyOfDeadline(a *schedulingv1alpha1.Assignment) drainEnd {
	return drainEnd{a.UID, a.Spec.DrainDeadline.UnixMicro()}
}

// at returns when the deadline of an Assignment ends, by the wall clock as it shows now.
func (d *deadlines) at(a *schedulingv1alpha1.Assignment, now time.Time) time.Time {
	set := a.Spec.DrainDeadline.Time
	key := keyOfDeadline(a)
	at, known := d.ends.Last(key, now)
	if !known {
		at = set
		// A clock that was set back while the server was away must not prolong it.
		if since := a.Spec.DrainingSince; since != nil && at.Sub(now) > set.Sub(since.Time) {
			at = now.Add(set.Sub(since.Time))
		}
		d.ends.Saw(key, now.Sub(at))
	}
	if at.Sub(set).Abs() < time.Second {
		return set
	}
	return at
}

func (d *deadlines) forget(a *schedulingv1alpha1.Assignment) {
	if a.Spec.DrainDeadline != nil {
		d.ends.Forget(keyOfDeadline(a))
	}
}
