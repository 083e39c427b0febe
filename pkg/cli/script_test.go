package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"os/signal"
	"path/filepath"
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

// scriptCommands are run in the test's process.
var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	// code N COMMAND...: the command ends with exit code N. Its output goes to stdout and
	// stderr as with exec.
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
