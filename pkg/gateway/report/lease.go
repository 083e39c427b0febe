package report

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	networkingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/networking/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

const (
	// renewInterval and leaseDuration let two renewals fail before the lease runs out.
	renewInterval = 5 * time.Second
	leaseDuration = 15 * time.Second
	// renewRetry is the pause after a failed renewal.
	renewRetry = time.Second
	// writeTimeout bounds one write.
	writeTimeout = 4 * time.Second
)

// Lease keeps the GatewayInstance of this gateway fresh.
type Lease struct {
	Client    Client
	Name      string
	Addresses []string
	Version   string
}

// Run renews until ctx ends. The object stays behind: it expires by itself, and a gateway
// that is only restarted does not lose its address in every Ingress's status.
func (l *Lease) Run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues("instance", l.Name)
	for ctx.Err() == nil {
		pause := renewInterval
		if err := l.renew(ctx); err != nil && ctx.Err() == nil {
			logger.Error(err, "Cannot renew the lease")
			pause = renewRetry
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (l *Lease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return l.Client.Put(ctx, Instances, logicalcluster.Key{Cluster: logicalcluster.Root, Name: l.Name}, networkingv1alpha1.GatewayInstanceSpec{
		Addresses:            l.Addresses,
		RenewTime:            metav1.NowMicro(),
		LeaseDurationSeconds: int32(leaseDuration / time.Second),
		Version:              l.Version,
	})
}
