// Package doctor holds the use case of "doctor": it looks at everything between a person
// and their running workload, in the order in which one thing needs the other, and says
// for each what is wrong and what to do about it. It changes nothing, except that a login
// is refreshed as any command would.
package doctor

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"github.com/13eedeaf/kcp/pkg/cli/console"
	"github.com/13eedeaf/kcp/pkg/cli/kubeconfig"
	"github.com/13eedeaf/kcp/pkg/cli/printer"
	"github.com/13eedeaf/kcp/pkg/cli/problem"
	"github.com/13eedeaf/kcp/pkg/cli/session"
)

// Outcome of a check.
type Outcome string

const (
	// OK means that nothing is wrong.
	OK Outcome = "ok"
	// Warn means that something works, or will not for long, but not as it should.
	Warn Outcome = "warn"
	// Fail means that commands cannot work.
	Fail Outcome = "fail"
	// Skip means that a check it needs has failed.
	Skip Outcome = "skip"
)

// Check is one of the things looked at.
type Check struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	Message string  `json:"message"`
	// Hint ends in a command that helps; empty when nothing is wrong.
	Hint string `json:"hint,omitempty"`
}

// Report is the output of doctor -o json.
type Report struct {
	Checks []Check `json:"checks"`
	// Healthy is false if a check failed.
	Healthy bool `json:"healthy"`
}

// Doctor is the use case.
type Doctor struct {
	Console *console.Console
	Config  *kubeconfig.Store
	Clock   clock.PassiveClock
	Printer printer.Printer
	// Context names a kubeconfig context; empty means the current one.
	Context string
	// Open opens a session of Context.
	Open func(context.Context) (*session.Session, error)
	// Login returns the tokens of a login, refreshed if need be, without asking.
	Login func(context.Context, *clientcmdapi.AuthInfo) (Login, error)
}

// Login is what is known of the identity in use.
type Login struct {
	// Own is true for a login of "kubectl kcp login".
	Own bool
	// Expiry is when the token expires.
	Expiry time.Time
	// Renews is true if the token can be refreshed without a person.
	Renews bool
}

// checkTimeout bounds one check.
const checkTimeout = 10 * time.Second

// examination is what the checks find out for each other.
type examination struct {
	*Doctor
	kubeconfig *clientcmdapi.Config
	session    *session.Session
	answer     *http.Response // to an anonymous request; its body is closed
	asked      time.Duration  // how long that took
	reachErr   error
}

// steps are the checks, each with the one that it needs.
var steps = []struct {
	name, needs string
	check       func(*examination, context.Context) (Outcome, string, string)
}{
	{"kubeconfig", "", (*examination).checkKubeconfig},
	{"workspace", "kubeconfig", (*examination).checkWorkspace},
	{"server", "workspace", (*examination).checkServer},
	{"tls", "server", (*examination).checkTLS},
	{"clock", "tls", (*examination).checkClock},
	{"version", "tls", (*examination).checkVersion},
	{"login", "tls", (*examination).checkLogin},
	{"access", "login", (*examination).checkAccess},
	{"locations", "access", (*examination).checkLocations},
	{"placement", "access", (*examination).checkPlacement},
}

// Do checks everything and prints what it found. It returns an error if a check failed.
func (d *Doctor) Do(ctx context.Context) error {
	report := d.examine(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := d.print(report); err != nil {
		return err
	}
	failed := 0
	for _, c := range report.Checks {
		if c.Outcome == Fail {
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	return problem.New("%d of %d checks failed", failed, len(report.Checks)).
		Hint("do what the hints above say, then look again: kubectl kcp doctor")
}

func (d *Doctor) examine(ctx context.Context) Report {
	e := &examination{Doctor: d}
	report := Report{Healthy: true}
	passed := map[string]bool{"": true}
	for _, step := range steps {
		c := Check{Name: step.name, Outcome: Skip, Message: "needs " + step.needs}
		if passed[step.needs] {
			stepCtx, cancel := context.WithTimeout(ctx, checkTimeout)
			c.Outcome, c.Message, c.Hint = step.check(e, stepCtx)
			cancel()
		}
		passed[step.name] = c.Outcome == OK || c.Outcome == Warn
		report.Healthy = report.Healthy && c.Outcome != Fail
		report.Checks = append(report.Checks, c)
	}
	return report
}

// failed is the outcome of a check that met an error.
func (e *examination) failed(err error) (Outcome, string, string) {
	about := problem.About{}
	if e.kubeconfig != nil {
		about.Login = session.LoginCommand(e.kubeconfig, e.Context)
	}
	p := problem.Describe(err, about)
	return Fail, p.Error(), p.HintText()
}

func (d *Doctor) print(report Report) error {
	if d.Printer.Format.Structured() {
		return d.Printer.Value(report)
	}
	paint := map[Outcome]func(string) string{OK: d.Console.Good, Warn: d.Console.Doubtful, Fail: d.Console.Bad}
	var text strings.Builder
	tw := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	for _, c := range report.Checks {
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\n", c.Outcome, c.Name, c.Message) // to memory
		if c.Hint != "" {
			_, _ = fmt.Fprintf(tw, "\t\thint: %s\n", c.Hint)
		}
	}
	_ = tw.Flush()
	for line := range strings.Lines(text.String()) {
		outcome, rest, _ := strings.Cut(line, " ")
		if f, ok := paint[Outcome(outcome)]; ok {
			outcome = f(outcome)
		}
		d.Console.Print("%s %s", outcome, strings.TrimSuffix(rest, "\n"))
	}
	return nil
}
