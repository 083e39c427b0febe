package native

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	genericrest "k8s.io/apiserver/pkg/registry/generic/rest"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/ptr"
)

// addTo adds the subresources of pods that need a kubelet. Methods, options and
// the rights that they ask for are upstream's (k8s.io/kubernetes/pkg/registry/core/pod/rest).
func (p *PodAccess) addTo(storage map[string]rest.Storage) error {
	pods, ok := storage["pods"].(rest.Getter)
	if !ok {
		return fmt.Errorf("the storage of pods is a %T", storage["pods"])
	}
	storage["pods/log"] = &logREST{access: p, pods: pods}
	for subresource, options := range map[string]func() runtime.Object{
		"exec":        func() runtime.Object { return &core.PodExecOptions{} },
		"attach":      func() runtime.Object { return &core.PodAttachOptions{} },
		"portforward": func() runtime.Object { return &core.PodPortForwardOptions{} },
	} {
		storage["pods/"+subresource] = &connectREST{access: p, pods: pods, subresource: subresource, options: options}
	}
	return nil
}

// logREST streams the log of a pod.
type logREST struct {
	access *PodAccess
	pods   rest.Getter
}

var (
	_ rest.GetterWithOptions = &logREST{}
	_ rest.StorageMetadata   = &logREST{}
)

func (r *logREST) New() runtime.Object { return &core.Pod{} }

// Destroy leaves the store to pods.
func (r *logREST) Destroy() {}

// NewGetOptions implements rest.GetterWithOptions.
func (r *logREST) NewGetOptions() (runtime.Object, bool, string) {
	return &core.PodLogOptions{}, false, ""
}

// ProducesMIMETypes implements rest.StorageMetadata.
func (r *logREST) ProducesMIMETypes(string) []string { return []string{"text/plain"} }

// ProducesObject implements rest.StorageMetadata.
func (r *logREST) ProducesObject(string) any { return "" }

// OverrideMetricsVerb counts logs as connections, which may last.
func (r *logREST) OverrideMetricsVerb(verb string) string {
	if verb == http.MethodGet {
		return "CONNECT"
	}
	return verb
}

// Get implements rest.GetterWithOptions.
func (r *logREST) Get(ctx context.Context, name string, opts runtime.Object) (runtime.Object, error) {
	options, ok := opts.(*core.PodLogOptions)
	if !ok {
		return nil, fmt.Errorf("a %T is no options of pods/log", opts)
	}
	splitStreams := utilfeature.DefaultFeatureGate.Enabled(features.PodLogsQuerySplitStreams)
	if splitStreams && options.Stream == nil {
		options.Stream = ptr.To(core.LogStreamAll)
	}
	if errs := validation.ValidatePodLogOptions(options, splitStreams); len(errs) > 0 {
		return nil, apierrors.NewInvalid(core.Kind("PodLogOptions"), name, errs)
	}
	// How the physical cluster trusts its nodes is not a tenant's to say.
	options.InsecureSkipTLSVerifyBackend = false
	if options.Stream != nil && *options.Stream == core.LogStreamAll {
		// The default; a cluster that is older does not know the option.
		options.Stream = nil
	}
	location, err := r.access.locate(ctx, r.pods, name, "log", options)
	if err != nil {
		return nil, err
	}
	return &genericrest.LocationStreamer{
		Location:        location.url,
		Transport:       location.transport,
		ContentType:     "text/plain",
		Flush:           options.Follow,
		ResponseChecker: statusChecker{},
		RedirectChecker: genericrest.PreventRedirects,
	}, nil
}

// connectREST is a subresource of pods whose connection changes its protocol.
type connectREST struct {
	access      *PodAccess
	pods        rest.Getter
	subresource string
	options     func() runtime.Object
}

var _ rest.Connecter = &connectREST{}

func (r *connectREST) New() runtime.Object { return r.options() }

// Destroy leaves the store to pods.
func (r *connectREST) Destroy() {}

// NewConnectOptions implements rest.Connecter.
func (r *connectREST) NewConnectOptions() (runtime.Object, bool, string) {
	return r.options(), false, ""
}

// ConnectMethods implements rest.Connecter; WebSockets begin with GET, SPDY with POST.
func (r *connectREST) ConnectMethods() []string {
	return []string{http.MethodGet, http.MethodPost}
}

// Connect implements rest.Connecter.
func (r *connectREST) Connect(ctx context.Context, name string, opts runtime.Object, responder rest.Responder) (http.Handler, error) {
	if utilfeature.DefaultFeatureGate.Enabled(features.AuthorizePodWebsocketUpgradeCreatePermission) {
		if err := requireCreate(ctx, r.access.Authorizer); err != nil {
			return nil, err
		}
	}
	location, err := r.access.locate(ctx, r.pods, name, r.subresource, opts)
	if err != nil {
		return nil, err
	}
	return location.proxy(name, responder), nil
}

// requireCreate refuses who may only get the subresource: with WebSockets, which begin
// with GET, that would be enough to run commands (kubernetes/kubernetes#133515).
func requireCreate(ctx context.Context, a authorizer.UnconditionalAuthorizer) error {
	attributes, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("cannot tell what is asked for: %w", err))
	}
	if attributes.GetVerb() == "create" {
		return nil
	}
	decision, reason, err := a.Authorize(ctx, withVerb{attributes, "create"})
	if err != nil {
		return err
	}
	if decision != authorizer.DecisionAllow {
		gr := schema.GroupResource{Group: attributes.GetAPIGroup(), Resource: attributes.GetResource()}
		return apierrors.NewForbidden(gr, attributes.GetName(), errors.New(reason))
	}
	return nil
}

type withVerb struct {
	authorizer.Attributes
	verb string
}

func (a withVerb) GetVerb() string { return a.verb }
