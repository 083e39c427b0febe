package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/13eedeaf/kcp/test/physical"
)

// The documents for users whose commands are run, in the order of reading: one after the
// other in one world, so that a later one finds what an earlier one made. The README has a
// world of its own.
var documents = []string{
	readme, "docs/getting-started.md", "docs/cluster-admins.md", "docs/tenants.md", "docs/operations.md", "docs/troubleshooting.md",
}

const readme = "README.md"

// notRun are the blocks of these documents that no test runs, by how they begin, and why.
var notRun = map[string]string{
	"README.md: make demo":                           "it runs for minutes: TestCordonDrainStory and its like run the same scripts",
	"README.md: make build":                          "this test runs what it builds",
	"docs/tenants.md: kubectl logs -f":               "interactive, or needs tools in the image",
	"docs/operations.md: kcp start --authentication": "it needs an issuer of the reader's own",
}

// otherDocuments have commands that no test runs in this way, and why.
var otherDocuments = map[string]string{
	"CONTRIBUTING.md":                     "targets of make: .ci/run calls them",
	"docs/performance.md":                 "make bench measures for an hour",
	"contrib/demo/README.md":              "the stories: TestCordonDrainStory, TestLoginStory, TestWorkspacesStory",
	"contrib/demo/cordon-drain/README.md": "the same",
	"test/physical/README.md":             "the testbed by hand: TestCordonDrainStory brings it up so",
}

// last stands for the blocks that are marked so.
const last = "last"

// What a reader has to put in the place of an example.
var placeholders = strings.NewReplacer(
	"sha256:…", `"$(fingerprint)"`,
	"root:users:alice-…", `"$(home_of_alice)"`,
	"nginxinc/nginx-unprivileged", "demo.local/app:v1", // nothing can be pulled here
)

// docPreamble defines what the markers need; see block.
const docPreamble = `
set -euo pipefail
cd "$WORK"
# as NAME goes to a person's terminal, in which KUBECONFIG is as they left it.
declare -A terminals=()
as() {
  terminals[$DEMO_USER]=${KUBECONFIG:-}
  export HOME=$WORK/$1 DEMO_USER=$1
  mkdir -p "$HOME"
  unset KUBECONFIG
  [ -z "${terminals[$1]:-}" ] || export KUBECONFIG=${terminals[$1]}
}
fingerprint() { sed -n 's/.*--ca-fingerprint //p' "$WORK"/background-*.log | head -n 1; }
home_of_alice() {
  KUBECONFIG=$WORK/.kcp/admin.kubeconfig kubectl kcp workspace list --workspace root:users -o name | sed -n 's#.*/\(alice-.*\)#root:users:\1#p'
}
# background NAME TEXT SCRIPT goes on until the test ends, and has said TEXT when this returns.
background() {
  : >"$WORK/background-$1.log"
  setsid bash -euo pipefail -c "$3" >"$WORK/background-$1.log" 2>&1 </dev/null &
  echo $! >>"$WORK/pids"
  local end=$((SECONDS + 60))
  until grep -qF -- "$2" "$WORK/background-$1.log"; do
    [ "$SECONDS" -lt "$end" ] || { cat "$WORK/background-$1.log"; echo "it has not said: $2"; exit 1; }
    sleep 0.2
  done
}
# fails TEXT SCRIPT
fails() {
  local code=0
  bash -euo pipefail -c "$2" >"$WORK/out" 2>&1 || code=$?
  cat "$WORK/out"
  [ "$code" -ne 0 ] || { echo "it did not fail"; exit 1; }
  grep -qF -- "$1" "$WORK/out" || { echo "it does not say: $1"; exit 1; }
}
`

// block is a code block of a document, with the marker before it:
//
//	<!-- test -->                           run it
//	<!-- test: as NAME -->                  at this person's terminal
//	<!-- test: background until "TEXT" -->  let it run; go on when it has said TEXT
//	<!-- test: fails with "TEXT" -->        its last command fails and says TEXT
//	<!-- test: last -->                     after all documents, since it takes things away
//	<!-- not run -->                        named in notRun
//
// Options are separated by semicolons.
type block struct {
	where, as, until, fails, text string
	background, last, skip        bool
}

var (
	optionRE = regexp.MustCompile(`^(?:as (\w+)|(background)(?: until "(.*)")?|fails with "(.*)"|(last))$`)
	markerRE = regexp.MustCompile(`^<!-- (?:(not run)|test(?:: (.*))?) -->$`)
)

// blocksOf returns the shell blocks of a document. Every one must have a marker.
func blocksOf(t *testing.T, root, document string) []block {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	var current *block
	before := ""
	for i, line := range strings.Split(string(data), "\n") {
		switch {
		case current != nil && line == "```":
			blocks, current = append(blocks, *current), nil
		case current != nil:
			current.text += line + "\n"
		case line == "```sh":
			current = &block{where: fmt.Sprintf("%s:%d", document, i+1)}
			if err := current.mark(before); err != nil {
				t.Fatalf("%s: %v", current.where, err)
			}
		}
		before = line
	}
	return blocks
}

func (b *block) mark(marker string) error {
	m := markerRE.FindStringSubmatch(marker)
	if m == nil {
		return fmt.Errorf("the line before the block is %q, which is no marker", marker)
	}
	if b.skip = m[1] != ""; b.skip || m[2] == "" {
		return nil
	}
	for option := range strings.SplitSeq(m[2], "; ") {
		o := optionRE.FindStringSubmatch(option)
		if o == nil {
			return fmt.Errorf("%q is no option of a marker", option)
		}
		switch {
		case o[1] != "":
			b.as = o[1]
		case o[2] != "":
			b.background, b.until = true, o[3]
		case o[5] != "":
			b.last = true
		default:
			b.fails = o[4]
		}
	}
	return nil
}

// script is what the block is in a script of all blocks of its document. Standard input
// is the password, for whoever asks for one.
func (b *block) script(number int) string {
	var s strings.Builder
	fmt.Fprintf(&s, "echo '--- %s'\n", b.where)
	if b.as != "" {
		fmt.Fprintf(&s, "as %s\n", b.as)
	}
	text := placeholders.Replace(b.text)
	switch {
	case b.background:
		fmt.Fprintf(&s, "background %d %s %s\n", number, quote(b.until), quote("exec "+text))
	case b.fails != "":
		fmt.Fprintf(&s, "fails %s %s\n", quote(b.fails), quote(text))
	default:
		fmt.Fprintf(&s, "exec <\"$WORK/password\"\nset -x\n%s{ set +x; } 2>/dev/null\n", text)
	}
	return s.String()
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// TestEveryCommandIsRun makes sure that a block of commands in any document is run by
// TestDocs, or named here with the reason why not.
func TestEveryCommandIsRun(t *testing.T) {
	root := repository(t)
	found := map[string]bool{}
	for _, document := range documents {
		for _, b := range blocksOf(t, root, document) {
			if !b.skip {
				continue
			}
			named := false
			for key := range notRun {
				if strings.HasPrefix(document+": "+b.text, key) {
					named, found[key] = true, true
				}
			}
			if !named {
				t.Errorf("%s: it is not run, and notRun does not say why", b.where)
			}
		}
	}
	for key := range notRun {
		if !found[key] {
			t.Errorf("notRun: no block that is marked so begins like %q", key)
		}
	}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "contrib/*/*.md", "contrib/*/*/*.md", "test/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(data), "\n```sh\n") && !slices.Contains(documents, name) && otherDocuments[name] == "" {
				t.Errorf("%s has commands: list it in documents, or in otherDocuments with the reason", name)
			}
		}
	}
}

func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// TestDocs runs every command of the documents for users, on two physical clusters.
func TestDocs(t *testing.T) {
	bin := os.Getenv("KCP_BIN")
	if bin == "" {
		t.Skip("KCP_BIN is not set: run make test-e2e")
	}
	root := repository(t)
	work, err := os.MkdirTemp("", "kcp-docs-") // short: the path of a unix socket is limited
	if err != nil {
		t.Fatal(err)
	}
	scripts := map[string]string{}
	for d, document := range documents {
		for n, b := range blocksOf(t, root, document) {
			switch {
			case b.skip:
			case b.last:
				scripts[last] += b.script(100*d + n)
			default:
				scripts[document] += b.script(100*d + n)
			}
		}
	}
	fixture, err := physical.Up(t.Context(), physical.Options{Dir: filepath.Join(work, "physical"), BinDir: bin, Netns: netnsName("docs")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		stopBackground(t, work)
		if err := fixture.Down(ctx); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("state and logs are in %s", work)
			return
		}
		_ = os.RemoveAll(work)
	})
	for _, c := range fixture.Clusters() {
		data, err := os.ReadFile(c.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(work, c.Name()+".kubeconfig"), string(data))
	}
	world := filepath.Join(work, "readme")
	if err := os.Mkdir(world, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, document := range append(documents, last) {
		ok := t.Run(filepath.Base(document), func(t *testing.T) {
			put(t, filepath.Join(world, "password"), "correct horse battery\n")
			cmd := fixture.Command(t.Context(), "bash", "-c", docPreamble+scripts[document])
			cmd.Env = append(os.Environ(),
				"WORK="+world, "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+world, "KUBECONFIG=", "SSH_CONNECTION=",
				"BROWSER="+filepath.Join(root, "contrib", "demo", "lib", "browser.sh"),
				"DEMO_USER=nobody", "DEMO_PASSWORD=correct horse battery", "DEMO_CA="+filepath.Join(world, ".kcp", "pki", "ca.crt"),
			)
			// What runs on in the background keeps its own output; this ends with the script.
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out)
			if document == readme {
				stopBackground(t, world)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		if !ok {
			return // later ones build on it
		}
		world = work
	}
}

// TestTroubleshootingMessages makes sure that what troubleshooting.md explains is what the
// programs say: each heading in backquotes is a message, with … for what varies.
func TestTroubleshootingMessages(t *testing.T) {
	var source strings.Builder
	for _, dir := range []string{"../../pkg", "../../cmd"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			source.Write(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	messages := regexp.MustCompile("(?m)^### `(.*)`$").FindAllStringSubmatch(string(data), -1)
	if len(messages) < 10 {
		t.Fatalf("only %d messages found", len(messages))
	}
	for _, message := range messages {
		for part := range strings.SplitSeq(message[1], "…") {
			if part = strings.TrimSpace(part); !strings.Contains(source.String(), part) {
				t.Errorf("nothing says %q of %q", part, message[1])
			}
		}
	}
}

func put(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// stopBackground ends what background started: each is the leader of a session.
func stopBackground(t *testing.T, work string) {
	data, err := os.ReadFile(filepath.Join(work, "pids"))
	if err != nil {
		return // nothing was started
	}
	for _, field := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Error(err)
			continue
		}
		deadline := time.Now().Add(20 * time.Second)
		for sig := syscall.SIGTERM; !errors.Is(syscall.Kill(-pid, sig), syscall.ESRCH); sig = 0 {
			if time.Now().After(deadline) {
				_ = syscall.Kill(-pid, syscall.SIGKILL)
				break
			}
			time.Sleep(50 * time.Millisecond) // it is no child of ours, which could be waited for
		}
	}
}
