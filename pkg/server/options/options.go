// Package options holds the flags of `kcp start`: the product's own and those of
// upstream's API server that make sense here.
package options

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	controlplaneoptions "k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"k8s.io/utils/clock"
	netutils "k8s.io/utils/net"
)

// Options are the flags of `kcp start`.
type Options struct {
	// RootDirectory holds everything that the server keeps: etcd's data, keys,
	// kubeconfigs.
	RootDirectory string
	// ExternalHostname is how clients reach the server; it stands in URLs and in the
	// serving certificate.
	ExternalHostname string
	// EmbeddedIdentityProvider serves an OpenID Provider on the same port.
	EmbeddedIdentityProvider bool
	// AuthenticationConfig is the file of a structured AuthenticationConfiguration.
	AuthenticationConfig string
	// LoginIssuer, LoginClientID and LoginScopes are published for `kubectl kcp login`
	// when the identity provider is not the embedded one.
	LoginIssuer   string
	LoginClientID string
	LoginScopes   []string

	// Clock is the wall clock, nil for the machine's. It is no flag: tests set it.
	Clock clock.PassiveClock

	// ControlPlane are upstream's options.
	ControlPlane *controlplaneoptions.Options
}

// New returns options with defaults: everything on loopback, data in .kcp.
func New() *Options {
	upstream := controlplaneoptions.NewOptions()
	upstream.SecureServing.BindAddress = netutils.ParseIPSloppy("127.0.0.1")
	upstream.SecureServing.BindPort = 6443
	upstream.Etcd.StorageConfig.Transport.ServerList = nil
	// No garbage collector runs, so nothing may wait for one: with this on, a deletion
	// with --cascade=foreground or orphan would never end.
	upstream.Etcd.EnableGarbageCollection = false
	// Admission, authentication and authorization are this product's; upstream's know
	// one cluster.
	upstream.Admission = nil
	upstream.Authorization = nil
	upstream.Authentication = kubeoptions.NewBuiltInAuthenticationOptions().
		WithAnonymous().WithClientCert().WithRequestHeader().WithServiceAccounts()
	upstream.Authentication.ServiceAccounts.Lookup = false
	// Upstream's authenticator of service accounts is replaced; without this it would
	// start informers for it.
	upstream.Authentication.ServiceAccounts.OptionalTokenGetter = func(informers.SharedInformerFactory) serviceaccount.ServiceAccountTokenGetter {
		return nil
	}
	upstream.Authentication.ServiceAccounts.ExtendExpiration = false
	upstream.Features.EnableProfiling = true
	switchOff(
		// Servers of this product do not forward requests to peers of another version.
		genericfeatures.UnknownVersionInteroperabilityProxy,
		// It keeps leases of servers for what is not used here (storage versions, peers), and
		// logs errors at first, for the lack of a namespace. The feature above needs it.
		genericfeatures.APIServerIdentity,
		// It remembers who may impersonate whom under a key that knows no cluster; authz
		// refuses its verbs, so that nothing rests on this switch.
		genericfeatures.ConstrainedImpersonation,
		// It keeps the watch cache's tree as it was after each of the last events, a third
		// of all that a burst of creations or deletions leaves in memory, to serve pages
		// after the first from memory too. They come from etcd without it.
		genericfeatures.ListFromCacheSnapshot,
		// It keeps the size of every object of every workspace, by its key, to estimate what
		// a list costs; all workspaces' together say nothing of the list of one.
		genericfeatures.SizeBasedListCostEstimate,
	)
	return &Options{
		RootDirectory: ".kcp",
		LoginClientID: "kcp",
		LoginScopes:   []string{"openid", "email", "profile", "offline_access"},
		ControlPlane:  upstream,
	}
}

func switchOff(features ...featuregate.Feature) {
	for _, feature := range features {
		if err := utilfeature.DefaultMutableFeatureGate.Set(string(feature) + "=false"); err != nil {
			klog.Background().Error(err, "Cannot switch off an upstream feature", "feature", feature)
		}
	}
}

// AddFlags registers the flags, in named groups for the help text.
func (o *Options) AddFlags(fss *cliflag.NamedFlagSets) {
	fs := fss.FlagSet("kcp")
	fs.StringVar(&o.RootDirectory, "root-directory", o.RootDirectory, "Directory that holds everything the server keeps. It is locked while the server runs.")
	fs.StringVar(&o.ExternalHostname, "external-hostname", o.ExternalHostname, "Host name or IP at which clients reach the server. Default: --bind-address, or 127.0.0.1 where that is all addresses.")
	fs.BoolVar(&o.EmbeddedIdentityProvider, "embedded-idp", o.EmbeddedIdentityProvider, "Serve an OpenID Provider, with users from <root-directory>/idp/users.yaml, and log in with it. For laptops and tests; production names its own issuer. Default: true without --authentication-config and --login-issuer.")
	fs.StringVar(&o.AuthenticationConfig, "authentication-config", o.AuthenticationConfig, "File with an apiserver.config.k8s.io AuthenticationConfiguration: the OIDC issuers to trust. Reloaded when it changes.")
	fs.StringVar(&o.LoginIssuer, "login-issuer", o.LoginIssuer, "OIDC issuer URL that kubectl kcp login is sent to. It must be one of --authentication-config. Default: the embedded provider.")
	fs.StringVar(&o.LoginClientID, "login-client-id", o.LoginClientID, "OIDC client id that kubectl kcp login uses.")
	fs.StringSliceVar(&o.LoginScopes, "login-scopes", o.LoginScopes, "OIDC scopes that kubectl kcp login asks for.")

	c := o.ControlPlane
	c.GenericServerRunOptions.AddUniversalFlags(fss.FlagSet("generic"))
	c.Etcd.AddFlags(fss.FlagSet("etcd"))
	c.SecureServing.AddFlags(fss.FlagSet("secure serving"))
	c.Audit.AddFlags(fss.FlagSet("auditing"))
	c.Features.AddFlags(fss.FlagSet("features"))
	c.Metrics.AddFlags(fss.FlagSet("metrics"))
	c.Traces.AddFlags(fss.FlagSet("traces"))
	logsapi.AddFlags(c.Logs, fss.FlagSet("logs"))
	fss.FlagSet("misc").DurationVar(&c.EventTTL, "event-ttl", c.EventTTL, "How long events are kept.")
	tidyHelp(fss)
}

// hidden are flags of upstream's that have no effect here, or a bad one: the product
// decides these things itself.
var hidden = []string{
	"advertise-address", "external-hostname",
	"enable-garbage-collector", "etcd-servers-overrides",
	"watch-cache", "watch-cache-sizes", "default-watch-cache-size",
	"emulated-version", "emulation-forward-compatible", "min-compatibility-version",
	"runtime-config-emulation-forward-compatible",
}

// usages replace upstream's texts that do not fit, or fill screens.
var usages = map[string]string{
	"etcd-servers":  "Addresses of an external etcd, comma separated. Default: an embedded etcd in <root-directory>/etcd.",
	"feature-gates": "Features of the Kubernetes API server to switch on or off, such as WatchList=false, comma separated.",
}

func tidyHelp(fss *cliflag.NamedFlagSets) {
	for group, fs := range fss.FlagSets {
		if group == "kcp" {
			continue
		}
		for _, name := range hidden {
			if f := fs.Lookup(name); f != nil {
				f.Hidden = true
			}
		}
		for name, usage := range usages {
			if f := fs.Lookup(name); f != nil {
				f.Usage = usage
			}
		}
	}
}

// Completed are options with every default filled in. Only Complete makes them.
type Completed struct{ *completed }

type completed struct {
	Options
	// EmbeddedEtcd is true when no external etcd is named.
	EmbeddedEtcd bool
	// URL is the server's base URL, without a path.
	URL string
}

// Complete fills in defaults that depend on other options.
func (o *Options) Complete() (Completed, error) {
	c := completed{Options: *o}
	// Puts --feature-gates into force, before anything asks for a feature.
	if err := c.ControlPlane.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return Completed{}, fmt.Errorf("--feature-gates: %w", err)
	}
	if m := c.ControlPlane.Metrics; m != nil && reflect.ValueOf(m.MetricsConfiguration).IsZero() {
		// Nothing is asked of it, of which upstream would log an error.
		c.ControlPlane.Metrics = nil
	}
	root, err := filepath.Abs(o.RootDirectory)
	if err != nil {
		return Completed{}, fmt.Errorf("--root-directory %q: %w", o.RootDirectory, err)
	}
	c.RootDirectory = root
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	serving := c.ControlPlane.SecureServing
	if c.ExternalHostname == "" {
		c.ExternalHostname = "127.0.0.1"
		if ip := serving.BindAddress; ip != nil && !ip.IsUnspecified() {
			c.ExternalHostname = ip.String()
		}
	}
	c.ControlPlane.GenericServerRunOptions.ExternalHost = c.ExternalHostname
	// Upstream looks for a default route to advertise; nothing here needs one.
	advertise := serving.BindAddress
	if advertise == nil || advertise.IsUnspecified() {
		advertise = netutils.ParseIPSloppy("127.0.0.1")
	}
	c.ControlPlane.GenericServerRunOptions.AdvertiseAddress = advertise
	c.EmbeddedEtcd = len(c.ControlPlane.Etcd.StorageConfig.Transport.ServerList) == 0
	c.URL = "https://" + net.JoinHostPort(c.ExternalHostname, strconv.Itoa(serving.BindPort))
	return Completed{&c}, nil
}

// Validate checks what Complete cannot mend. Each error names the flag and the remedy.
func (c Completed) Validate() []error {
	errs := append(c.validateLogin(), c.validateServing()...)
	for _, server := range c.ControlPlane.Etcd.StorageConfig.Transport.ServerList {
		if u, err := url.Parse(server); err != nil || u.Host+u.Path == "" || !slices.Contains([]string{"http", "https", "unix", "unixs"}, u.Scheme) {
			errs = append(errs, fmt.Errorf("--etcd-servers %q: give addresses such as https://etcd.example.com:2379", server))
		}
	}
	if !c.EmbeddedEtcd {
		errs = append(errs, c.ControlPlane.Etcd.Validate()...)
	}
	errs = append(errs, c.ControlPlane.GenericServerRunOptions.Validate()...)
	errs = append(errs, c.ControlPlane.Audit.Validate()...)
	return append(errs, c.ControlPlane.Features.Validate()...)
}

func (c Completed) validateLogin() []error {
	var errs []error
	if c.AuthenticationConfig != "" {
		if _, err := os.Stat(c.AuthenticationConfig); err != nil {
			errs = append(errs, fmt.Errorf("--authentication-config: %w", err))
		}
	}
	switch {
	case c.LoginIssuer == "":
	case c.EmbeddedIdentityProvider:
		errs = append(errs, fmt.Errorf("--login-issuer and --embedded-idp exclude each other: give one"))
	case !strings.HasPrefix(c.LoginIssuer, "https://"):
		errs = append(errs, fmt.Errorf("--login-issuer %q: an issuer is an https URL", c.LoginIssuer))
	case c.AuthenticationConfig == "":
		errs = append(errs, fmt.Errorf("--login-issuer %q: nobody could log in, since the server trusts no issuer: name it in --authentication-config too", c.LoginIssuer))
	}
	return errs
}

func (c Completed) validateServing() []error {
	var errs []error
	serving := c.ControlPlane.SecureServing
	if serving.BindPort < 1 || serving.BindPort > 65535 {
		errs = append(errs, fmt.Errorf("--secure-port %d: give a port from 1 to 65535", serving.BindPort))
	}
	if host := c.ExternalHostname; net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
		errs = append(errs, fmt.Errorf("--external-hostname %q: give a host name or IP without scheme and port, such as kcp.example.com", host))
	}
	if pair := serving.ServerCert.CertKey; (pair.CertFile == "") != (pair.KeyFile == "") {
		errs = append(errs, fmt.Errorf("--tls-cert-file and --tls-private-key-file go together: give both or none"))
	}
	return errs
}

// ApplyLogging puts the logging flags into force. It must run before anything logs.
func (o *Options) ApplyLogging() error {
	logs.InitLogs()
	return logsapi.ValidateAndApply(o.ControlPlane.Logs, nil)
}
