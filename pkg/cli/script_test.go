// What the command line promises, and the tests that hold it to that. Names in lower case
// are scripts in testdata/script; others are Go tests, here or in the package named.
//
//	 1 data on stdout, the rest on stderr; JSON parses      output, login_device, every "! stdout ."
//	 2 table, wide, json, yaml, name, --no-headers          workspace_list, locations, output
//	 3 workspace: . .. - ~ PATH NAME use list tree
//	   create delete --short                                workspace, workspace_list, kubeconfig
//	 4 colours only where they are seen                     terminal, help, console.TestColours
//	 5 no terminal: no question, the error has the command  workspace, terminal, console.TestConfirm
//	 6 errors: one line, a hint with a command              checkError at every "code", login_trouble,
//	                                                        help, locked, gettoken, problem.TestDescribe
//	 7 exit codes 0 1 2 4; usage only for wrong calls       checkError at every "code", gettoken (4), help;
//	                                                        all programs: e2e.TestCalledWrongly, exitcode.TestReport
//	 8 login: PKCE, ports, code on another device, Ctrl-C,
//	   time-out, trust; the user stands at home             login, login_trouble, login_device,
//	                                                        oidcflow.TestLogin, TestLoginByDevice, console.TestHere
//	 9 the browser's output never reaches stdout            login, gettoken
//	10 get-token: version, expiry, silent refresh,
//	   two calls open one browser                           gettoken, oidcflow.TestRefresh
//	11 token cache: modes, logout, no token in logs         login, gettoken, help, tokencache's tests
//	12 kubeconfig: only our entries, several files, 0600,
//	   nothing written for nothing, locks, interrupts       kubeconfig, locked, login, interrupt,
//	                                                        kubeconfig's and atomicfile's tests
//	13 insecure warns each time; no secret is a flag        output, login_trouble, TestFlags
//	14 progress on a terminal, lines elsewhere; --timeout
//	   names what is missing                                terminal, workspace, drain, unsync, console.TestProgress…,
//	                                                        workload.TestShow, workload.TestSummary
//	15 completion within a second, silent on failure        completion, TestArgumentsComplete,
//	                                                        TestFlagValuesComplete
//	16 help has an example each; version works offline      help, TestHelp
//	17 cordon, uncordon, drain as kubectl's                 workload, drain, workload's tests
//
// doctor has doctor.

package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/13eedeaf/kcp/pkg/cli"
)

// TestMain makes the test's binary also the plugin, and a browser, for the scripts.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"kubectl-kcp":          plugin,
		"kubectl_complete-kcp": plugin,
		"browser":              browserMain,
	})
}

// plugin is cmd/kubectl-kcp's main.
func plugin() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	run := cli.Run
	if cli.IsCompleter(os.Args[0]) {
		run = cli.Complete
	}
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// TestScripts runs testdata/script/*.txtar, each with a server of its own: a fake of
// kcp's API in front of a real OpenID provider, over TLS. Besides testscript's commands
// they have those of scriptCommands. Variables: URL, FINGERPRINT, CA (a file), HOST.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			if err := os.MkdirAll(home, 0o700); err != nil {
				return err
			}
			f := newFake(env)
			env.Values["fake"] = f
			ca := filepath.Join(env.WorkDir, "ca.crt")
			if err := os.WriteFile(ca, f.caPEM, 0o600); err != nil {
				return err
			}
			for k, v := range map[string]string{
				"HOME": home, "URL": f.url, "HOST": strings.TrimPrefix(f.url, "https://"), "FINGERPRINT": f.fingerprint, "CA": ca,
				"TEAM":       idOf("root:org:team"),
				"NAME":       "kcp-" + strings.ReplaceAll(strings.TrimPrefix(f.url, "https://"), ":", "-"),
				"KUBECONFIG": "", "BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": "", "KUBERNETES_EXEC_INFO": "", "SSH_CONNECTION": "",
			} {
				env.Setenv(k, v)
			}
			return nil
		},
		Cmds: scriptCommands,
	})
}

func fakeOf(ts *testscript.TestScript) *fake { return ts.Value("fake").(*fake) }

var (
	errorRE  = regexp.MustCompile(`(?m)^(\x1b\[31m)?error: (\x1b\[0m)?(.*)$`)
	hintRE   = regexp.MustCompile(`(?m)^(\x1b\[36m)?hint: (\x1b\[0m)?.*\S$`)
	goTypeRE = regexp.MustCompile(`Go (struct|value|map|slice)|\bv1(alpha1|beta1)?\.[A-Z]|\*[a-z]+\.[A-Z]|%!|&\{|map\[|0xc0`)
)

// checkError checks what holds for every error of the plugin: it ends in one line of its
// own and a hint, shows no Go types, and its usage only where the call was wrong.
func checkError(code int, stderr string) error {
	lines := errorRE.FindAllStringSubmatch(stderr, -1)
	usage := strings.Contains(stderr, "\nusage: ")
	switch {
	case len(lines) == 0:
		return fmt.Errorf("exit code %d without an error", code)
	case goTypeRE.MatchString(stderr):
		return fmt.Errorf("Go types are shown: %s", goTypeRE.FindString(stderr))
	case usage && code != 2:
		return fmt.Errorf("usage is shown although the call was right (code %d)", code)
	case strings.Contains(lines[len(lines)-1][3], "cancelled"):
		return nil
	}
	after := stderr[strings.LastIndex(stderr, "error: "):]
	hint := hintRE.FindString(after)
	if hint == "" || strings.Count(strings.TrimSpace(after), "\n") > 2 {
		return fmt.Errorf("the error has no hint, or more than that: %q", after)
	}
	if !commandRE.MatchString(hint) {
		return fmt.Errorf("the hint names no command: %q", hint)
	}
	return nil
}

var commandRE = regexp.MustCompile(`kubectl|kcp start|curl |openssl |rm |ls `)

// scriptCommands are run in the test's process.
var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	// code N COMMAND...: the command ends with exit code N. Its output goes to stdout and
	// stderr as with exec. An error of the plugin must be as checkError wants it.
	"code": func(ts *testscript.TestScript, _ bool, args []string) {
		want, err := strconv.Atoi(args[0])
		ts.Check(err)
		runErr := ts.Exec(args[1], args[2:]...)
		got := 0
		if exit, ok := runErr.(interface{ ExitCode() int }); ok {
			got = exit.ExitCode()
		} else {
			ts.Check(runErr)
		}
		if got != want {
			ts.Fatalf("exit code %d, want %d", got, want)
		}
		if args[1] == "kubectl-kcp" && got != 0 {
			ts.Check(checkError(got, ts.ReadFile("stderr")))
		}
	},
	// json FILE: the file, or stdout, is one JSON document and nothing else.
	"json": func(ts *testscript.TestScript, _ bool, args []string) {
		var v any
		ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &v))
	},
	// mode 0600 FILE: the file has this mode.
	"mode": func(ts *testscript.TestScript, _ bool, args []string) {
		info, err := os.Stat(ts.MkAbs(args[1]))
		ts.Check(err)
		if got := "0" + strconv.FormatInt(int64(info.Mode().Perm()), 8); got != args[0] {
			ts.Fatalf("%s has mode %s, want %s", args[1], got, args[0])
		}
	},
	// count NAME N: the server has seen N requests of that name.
	"count": func(ts *testscript.TestScript, _ bool, args []string) {
		want, err := strconv.Atoi(args[1])
		ts.Check(err)
		if got := fakeOf(ts).counted(args[0]); got != want {
			ts.Fatalf("%d %s requests, want %d", got, args[0], want)
		}
	},
	// waitfor FILE TEXT: until a background command has written the text to the file.
	"waitfor": func(ts *testscript.TestScript, _ bool, args []string) {
		deadline := time.Now().Add(10 * time.Second)
		for {
			data, err := os.ReadFile(ts.MkAbs(args[0]))
			if err == nil && strings.Contains(string(data), args[1]) {
				return
			}
			if time.Now().After(deadline) {
				ts.Fatalf("%s has no %q after 10 s: %s", args[0], args[1], data)
			}
			time.Sleep(10 * time.Millisecond)
		}
	},
	// set NAME VALUE: a switch of the server (see fake.switches).
	"set": func(ts *testscript.TestScript, _ bool, args []string) { fakeOf(ts).set(args[0], args[1]) },
	// stop: nobody listens at the server's address any more.
	"stop": func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(fakeOf(ts).server.Listener.Close()) },
	// object PATH RESOURCE NAME [!]SUBSTRING: the object's JSON contains the text.
	"object": func(ts *testscript.TestScript, _ bool, args []string) {
		obj := fakeOf(ts).get(args[0], args[1], args[2])
		data, err := json.Marshal(obj)
		ts.Check(err)
		want, not := strings.CutPrefix(args[3], "!")
		if obj == nil || strings.Contains(string(data), want) == not {
			ts.Fatalf("%s %s in %s is %s, want %s", args[1], args[2], args[0], data, args[3])
		}
	},
	// put PATH RESOURCE FILE: the server has the object that the file holds as JSON.
	"put": func(ts *testscript.TestScript, _ bool, args []string) {
		var obj object
		ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[2])), &obj))
		fakeOf(ts).put(args[0], args[1], obj)
	},
	// stale PATH NAME: the sync target's status tells of a drain of long ago.
	"stale": func(ts *testscript.TestScript, _ bool, args []string) {
		f := fakeOf(ts)
		obj := f.get(args[0], "synctargets", args[1])
		obj["status"] = object{"drain": object{"state": "Empty", "observedEvictAfter": "2020-01-01T00:00:00Z", "remaining": 0}}
		f.put(args[0], "synctargets", obj)
	},
	// device USER {allow|deny} FILE: a person reads the code that a command has written to
	// the file and decides on another device.
	"device": func(ts *testscript.TestScript, _ bool, args []string) {
		ts.Check(enterCode(args[0], args[1], ts.ReadFile(args[2])))
	},
	// expire: every token in the cache has expired.
	"expire": func(ts *testscript.TestScript, _ bool, _ []string) {
		files, err := filepath.Glob(filepath.Join(ts.Getenv("HOME"), ".kube/cache/kcp-login/*.json"))
		ts.Check(err)
		for _, file := range files {
			data, err := os.ReadFile(file)
			ts.Check(err)
			var login map[string]any
			ts.Check(json.Unmarshal(data, &login))
			login["expiry"] = time.Now().Add(-time.Hour).Format(time.RFC3339)
			data, err = json.Marshal(login)
			ts.Check(err)
			ts.Check(os.WriteFile(file, data, 0o600))
		}
	},
	// remember NAME FILE, unchanged NAME FILE: the file was not written in between.
	"remember": func(ts *testscript.TestScript, _ bool, args []string) {
		info, err := os.Stat(ts.MkAbs(args[1]))
		ts.Check(err)
		fakeOf(ts).files.Store(args[0], info)
	},
	"unchanged": func(ts *testscript.TestScript, neg bool, args []string) {
		old, _ := fakeOf(ts).files.Load(args[0])
		info, err := os.Stat(ts.MkAbs(args[1]))
		ts.Check(err)
		same := os.SameFile(old.(os.FileInfo), info) && old.(os.FileInfo).ModTime().Equal(info.ModTime())
		if same == neg {
			ts.Fatalf("%s: written in between is %v", args[1], !same)
		}
	},
	// admin FILE: write a kubeconfig of someone else's making, with a token.
	"admin": func(ts *testscript.TestScript, _ bool, args []string) {
		file := ts.MkAbs(args[0])
		ts.Check(os.MkdirAll(filepath.Dir(file), 0o700))
		ts.Check(os.WriteFile(file, []byte(fakeOf(ts).adminKubeconfig()), 0o600))
	},
}
