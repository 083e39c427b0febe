package login

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"

	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/kubeconfig"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/cli/tokencache"
)

// Logout is the use case of "kubectl kcp logout".
type Logout struct {
	Console *console.Console
	Clock   clock.PassiveClock
	Cache   *tokencache.Cache
	Config  *kubeconfig.Store
}

// LogoutInput of Logout.
type LogoutInput struct {
	// Context names a kubeconfig context; empty means the current one.
	Context string
}

// revokeTimeout bounds the call to an issuer that may be away: a logout works offline.
const revokeTimeout = 5 * time.Second

// Do forgets the tokens of a context's user and asks the issuer to do the same. The
// kubeconfig stays: its next use says how to log in.
func (l *Logout) Do(ctx context.Context, in LogoutInput) error {
	cfg, err := l.Config.Load()
	if err != nil {
		return err
	}
	name := in.Context
	if name == "" {
		name = cfg.CurrentContext
	}
	entry, ok := cfg.Contexts[name]
	if !ok {
		return problem.New("there is no context %q in the kubeconfig", name).Hint("see which there are: kubectl config get-contexts")
	}
	who, ok := IdentityOf(cfg.AuthInfos[entry.AuthInfo])
	if !ok {
		return problem.New("context %q does not use a login of \"kubectl kcp login\"", name).
			Hint("choose the context to log out of: kubectl kcp logout --context NAME")
	}
	unlock, err := l.Cache.Lock(ctx, who.key())
	if err != nil {
		return err
	}
	defer unlock()
	login, err := l.Cache.Get(who.key())
	if err != nil && !errors.Is(err, tokencache.ErrNone) {
		return err
	}
	// The file goes first: what fails after that must not leave the tokens here.
	had, err := l.Cache.Delete(who.key())
	if err != nil {
		return err
	}
	if !had {
		l.Console.Note("Not logged in to %s.", who.Server)
		return nil
	}
	if login != nil && login.RefreshToken != "" {
		l.revoke(ctx, who, login)
	}
	l.Console.Note("Logged out of %s.", who.Server)
	return nil
}

func (l *Logout) revoke(ctx context.Context, who Identity, login *tokencache.Login) {
	ctx, cancel := context.WithTimeout(ctx, revokeTimeout)
	defer cancel()
	provider, err := providerOf(ctx, l.Clock, who, login)
	if err == nil {
		_, err = provider.Revoke(ctx, login.RefreshToken)
	}
	if err != nil {
		l.Console.Warn("the tokens are removed here, but the issuer could not be told: %s", problem.Describe(err, problem.About{}).Error())
	}
}
