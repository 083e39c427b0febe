package reconciler

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// start runs a controller until the test ends.
func start[K comparable](t *testing.T, c *Controller[K]) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came within 10 s")
		panic("unreachable")
	}
}

func TestReconcileUntilItSucceeds(t *testing.T) {
	cases := map[string]func(attempt int32) error{
		"success": func(int32) error { return nil },
		"error":   func(n int32) error { return failUntil(n, 3) },
		"panic": func(n int32) error {
			if n < 3 {
				panic("bad object")
			}
			return nil
		},
	}
	want := map[string]int32{"success": 1, "error": 3, "panic": 3}
	for name, attempt := range cases {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int32
			done := make(chan logicalcluster.Key, 10)
			c := New("test", Func[logicalcluster.Key](func(_ context.Context, key logicalcluster.Key) (Result, error) {
				if err := attempt(n.Add(1)); err != nil {
					return Result{}, err
				}
				done <- key
				return Result{}, nil
			}))
			start(t, c)
			key := logicalcluster.Key{Cluster: "abc", Name: "x"}
			c.Enqueue(key)
			if diff := cmp.Diff(key, receive(t, done)); diff != "" {
				t.Errorf("key (-want +got):\n%s", diff)
			}
			if got := n.Load(); got != want[name] {
				t.Errorf("%d attempts, want %d", got, want[name])
			}
		})
	}
}

func failUntil(n, want int32) error {
	if n < want {
		return errors.New("not yet")
	}
	return nil
}

func TestOneKeyIsNotReconciledTwiceAtOnce(t *testing.T) {
	var running, overlaps atomic.Int32
	entered, leave := make(chan struct{}), make(chan struct{})
	c := New("test", Func[string](func(context.Context, string) (Result, error) {
		if running.Add(1) > 1 {
			overlaps.Add(1)
		}
		entered <- struct{}{}
		<-leave
		running.Add(-1)
		return Result{}, nil
	}), WithWorkers(4))
	start(t, c)
	c.Enqueue("a")
	receive(t, entered)
	c.Enqueue("a")
	select {
	case <-entered:
		t.Error("the key is worked on twice at once")
	case <-time.After(50 * time.Millisecond):
	}
	leave <- struct{}{}
	receive(t, entered) // what came meanwhile is not lost
	leave <- struct{}{}
	if n := overlaps.Load(); n != 0 {
		t.Errorf("%d overlaps", n)
	}
}

func TestRequeueAfter(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	calls := make(chan struct{}, 10)
	c := New("test", Func[string](func(context.Context, string) (Result, error) {
		calls <- struct{}{}
		return Result{RequeueAfter: time.Hour}, nil
	}), WithClock(clock))
	start(t, c)
	c.Enqueue("a")
	receive(t, calls)
	// The queue waits on the clock once it holds the delayed key.
	for !clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	clock.Step(59 * time.Minute)
	select {
	case <-calls:
		t.Error("called before the hour was over")
	case <-time.After(50 * time.Millisecond):
	}
	for len(calls) == 0 {
		clock.Step(time.Minute)
		time.Sleep(time.Millisecond)
	}
}

func TestRunReturnsWhenContextEnds(t *testing.T) {
	c := New("test", Func[string](func(ctx context.Context, _ string) (Result, error) {
		<-ctx.Done()
		return Result{}, ctx.Err()
	}), WithWorkers(3))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	c.Enqueue("a")
	c.Enqueue("b")
	cancel()
	receive(t, done)
}
