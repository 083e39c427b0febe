package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/admission"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/reconciler/clients"
	"github.com/13eedeaf/kcp/pkg/reconciler/informers"
	"github.com/13eedeaf/kcp/pkg/server/admission/lifecycle"
	"github.com/13eedeaf/kcp/pkg/server/options"
	"github.com/13eedeaf/kcp/pkg/server/pki"
)

// parts is what the product adds to upstream's server: the workspace tree, admission,
// virtual workspaces, the identity provider and the controllers.
type parts struct {
	clients   *clients.Clients
	informers *informers.Set
	admission admission.Interface

	running sync.WaitGroup
	// fail ends the server with an error; Run sets it.
	fail func(error)
}

func newParts(ctx context.Context, o options.Completed, keys *pki.PKI, cfg *config, deleteCluster func(context.Context, logicalcluster.Name) error) (*parts, error) {
	p := &parts{}
	var err error
	if p.clients, err = clients.New(cfg.loopback()); err != nil {
		return nil, err
	}
	p.informers = informers.NewSet(p.clients)
	p.admission = admission.NewChainHandler(lifecycle.New(cfg.registry))
	return p, nil
}

func (p *parts) deps() deps {
	return deps{resolver: rootOnly{}, admission: p.admission}
}

type rootOnly struct{}

func (rootOnly) Resolve(_ context.Context, path logicalcluster.Path) (logicalcluster.Name, error) {
	return logicalcluster.Name(path), nil
}

// mount puts the handlers beside the API on the mux; api serves requests that have been
// authorized.
func (p *parts) mount(m mux, api http.Handler) {}

// start waits for the API and runs the controllers. It returns when they all hold the
// server's state.
func (p *parts) start(ctx context.Context, loopback *rest.Config) error {
	if err := waitReady(ctx, loopback); err != nil {
		return err
	}
	p.informers.Start(ctx)
	p.informers.WaitForSync(ctx)
	return nil
}

func (p *parts) wait() {
	p.running.Wait()
	p.informers.Wait()
}

func minRequestTimeout(g *genericapiserver.Config) time.Duration {
	return time.Duration(g.MinRequestTimeout) * time.Second
}
