package idp

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/bcrypt"
)

const goodPassword = "correct horse"

func TestUsersAreReloaded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.yaml")
	s := newUserStore(file)
	if _, ok := s.authenticate("alice", goodPassword); ok {
		t.Fatal("alice signed in without a users' file")
	}
	if err := AddUser(file, "alice", "", nil, goodPassword); err != nil {
		t.Fatal(err)
	}
	alice, ok := s.authenticate("alice", goodPassword)
	if !ok {
		t.Fatal("alice is not known after AddUser")
	}
	// A file that someone is in the middle of editing locks nobody out.
	if err := os.WriteFile(file, []byte("- username: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, ok := s.bySubject(alice.subject()); !ok || got.Username != "alice" {
		t.Errorf("bySubject with a broken file = %v, %v; want alice", got, ok)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.authenticate("alice", goodPassword); ok {
		t.Error("alice signed in after the file was removed")
	}
}

func TestReadUsers(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte(goodPassword), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		content   string
		want      []string // user names
		wantError string
	}{
		"empty":         {content: ""},
		"by hand":       {content: "- username: bob\n  passwordHash: HASH\n", want: []string{"bob"}},
		"bad name":      {content: "- username: Bob\n  passwordHash: HASH\n", wantError: `user name "Bob" is malformed`},
		"injected name": {content: "- username: \"a:b\"\n  passwordHash: HASH\n", wantError: "is malformed"},
		"twice":         {content: "- username: bob\n  passwordHash: HASH\n- username: bob\n  id: x\n  passwordHash: HASH\n", wantError: `"bob" stands there twice`},
		"same id":       {content: "- username: bob\n  id: x\n  passwordHash: HASH\n- username: eve\n  id: x\n  passwordHash: HASH\n", wantError: `"eve" stands there twice`},
		"plain":         {content: "- username: bob\n  passwordHash: secret\n", wantError: "no bcrypt hash"},
		"typo":          {content: "- username: bob\n  pasword: secret\n", wantError: "cannot parse"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "users.yaml")
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(tc.content, "HASH", string(hash))), 0o600); err != nil {
				t.Fatal(err)
			}
			users, err := readUsers(file)
			if tc.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantError) {
					t.Fatalf("error = %v, want %q", err, tc.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, u := range users {
				got = append(got, u.Username)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("users (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAddUser(t *testing.T) {
	file := filepath.Join(t.TempDir(), "idp", "users.yaml")
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			if err := AddUser(file, name, name+"@example.com", []string{"dev"}, goodPassword); err != nil {
				t.Errorf("AddUser(%q): %v", name, err)
			}
		})
	}
	wg.Wait()
	users, err := readUsers(file)
	if err != nil {
		t.Fatal(err)
	}
	subjects := map[string]bool{}
	for _, u := range users {
		subjects[u.subject()] = true
	}
	if len(users) != 4 || len(subjects) != 4 {
		t.Errorf("%d users with %d subjects, want 4 and 4: an addition was lost", len(users), len(subjects))
	}
	for name, tc := range map[string]struct{ username, password, wantError string }{
		"exists":         {"a", goodPassword, `user "a" already exists`},
		"short password": {"e", "1234567", "8 to 72 bytes"},
		"long password":  {"e", strings.Repeat("x", 73), "8 to 72 bytes"},
		"bad name":       {"E", goodPassword, "is malformed"},
	} {
		if err := AddUser(file, tc.username, "", nil, tc.password); err == nil || !strings.Contains(err.Error(), tc.wantError) {
			t.Errorf("%s: error = %v, want %q", name, err, tc.wantError)
		}
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, want 0600", info.Mode().Perm())
	}
}

func TestAddUserCommand(t *testing.T) {
	root := t.TempDir()
	run := func(stdin string, args ...string) (string, error) {
		cmd := NewCommand()
		var out strings.Builder
		cmd.SetArgs(append([]string{"--root-directory", root}, args...))
		cmd.SetIn(strings.NewReader(stdin))
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		err := cmd.Execute()
		return out.String(), err
	}
	out, err := run(goodPassword+"\n", "add-user", "alice", "--email", "alice@example.com", "--groups", "dev,ops")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("user \"alice\" added\n", out); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	alice, ok := newUserStore(filepath.Join(root, "idp", UsersFile)).authenticate("alice", goodPassword)
	if !ok {
		t.Fatal("alice cannot sign in with the password from stdin")
	}
	if diff := cmp.Diff([]string{"dev", "ops"}, alice.Groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if _, err := run("", "add-user", "bob"); err == nil || !strings.Contains(err.Error(), "no password on stdin") {
		t.Errorf("error without a password = %v", err)
	}
}

// TestUserCommands removes and lists users, and misses a server's directory.
func TestUserCommands(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "idp", UsersFile)
	run := func(root string, args ...string) (string, error) {
		cmd := NewCommand()
		var out strings.Builder
		cmd.SetArgs(append([]string{"--root-directory", root}, args...))
		cmd.SetIn(strings.NewReader(goodPassword + "\n"))
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		err := cmd.Execute()
		return out.String(), err
	}
	for name, groups := range map[string][]string{"alice": nil, "bob": {"dev", "ops"}} {
		if err := AddUser(file, name, name+"@example.com", groups, goodPassword); err != nil {
			t.Fatal(err)
		}
	}
	s := newUserStore(file)
	before, ok := s.authenticate("alice", goodPassword)
	if !ok {
		t.Fatal("alice is not known")
	}
	out, err := run(root, "list-users")
	if err != nil || !strings.HasPrefix(out, "NAME    EMAIL               GROUPS\n") || !strings.Contains(out, "bob     bob@example.com     dev,ops\n") || !strings.Contains(out, "alice   alice@example.com   <none>\n") {
		t.Errorf("list: %v\n%s", err, out)
	}
	if _, err := run(root, "remove-user", "alice"); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.authenticate("alice", goodPassword); ok {
		t.Error("alice can sign in after she was removed")
	}
	if _, ok := s.bySubject(before.subject()); ok {
		t.Error("alice's tokens would be refreshed")
	}
	if _, ok := s.authenticate("bob", goodPassword); !ok {
		t.Error("bob was removed as well")
	}
	if _, err := run(root, "remove-user", "alice"); err == nil || !strings.Contains(err.Error(), `there is no user "alice"`) {
		t.Errorf("removing her again: %v", err)
	}
	if _, err := run(root, "add-user", "alice"); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.bySubject(before.subject()); ok {
		t.Error("what alice was given before is worth something again")
	}
	missing := filepath.Join(root, "none")
	if _, err := run(missing, "add-user", "carol"); err == nil || !strings.Contains(err.Error(), "no server was started in --root-directory") {
		t.Errorf("in a directory that is not there: %v", err)
	}
	if _, err := os.Stat(missing); !os.IsNotExist(err) {
		t.Errorf("it was made: %v", err)
	}
}
