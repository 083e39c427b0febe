package idp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/crypto/bcrypt"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/13eedeaf/kcp/pkg/atomicfile"
)

// user is one entry of users.yaml, which is a list of them.
type user struct {
	// Username is what is typed at sign-in: lower-case letters, digits, '-', '.', '_'
	// and '@'.
	Username string `json:"username"`
	// ID becomes sub; derived from Username when empty.
	ID     string   `json:"id,omitempty"`
	Email  string   `json:"email,omitempty"`
	Name   string   `json:"name,omitempty"`
	Groups []string `json:"groups,omitempty"`
	// PasswordHash is a bcrypt hash.
	PasswordHash string `json:"passwordHash"`
}

var usernameRE = regexp.MustCompile(`^[a-z0-9]([-a-z0-9._@]{0,61}[a-z0-9])?$`)

func (u user) subject() string {
	if u.ID != "" {
		return u.ID
	}
	sum := sha256.Sum256([]byte("kcp-idp-user\x00" + u.Username))
	return hex.EncodeToString(sum[:16])
}

// userStore reads the users' file again whenever it has changed. A file that cannot be
// read or parsed leaves the last good users in force.
type userStore struct {
	path string

	mu    sync.Mutex
	seen  os.FileInfo
	users []user
}

func newUserStore(path string) *userStore { return &userStore{path: path} }

// list returns the current users. Without a file there are none.
func (s *userStore) list() ([]user, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		s.seen, s.users = nil, nil
		return nil, nil
	}
	if err != nil {
		return s.users, fmt.Errorf("cannot read the users' file: %w", err)
	}
	if s.seen != nil && os.SameFile(s.seen, info) && s.seen.ModTime().Equal(info.ModTime()) && s.seen.Size() == info.Size() {
		return s.users, nil
	}
	users, err := readUsers(s.path)
	if err != nil {
		return s.users, err
	}
	s.seen, s.users = info, users
	return users, nil
}

// find returns the first user for which match is true. A broken file is logged, not
// returned: those who are already known can still sign in.
func (s *userStore) find(match func(user) bool) (user, bool) {
	users, err := s.list()
	if err != nil {
		klog.ErrorS(err, "Users' file not read, the last good one stays in force")
	}
	for _, u := range users {
		if match(u) {
			return u, true
		}
	}
	return user{}, false
}

func (s *userStore) bySubject(sub string) (user, bool) {
	return s.find(func(u user) bool { return u.subject() == sub })
}

// noUserHash makes checking an unknown user take as long as checking a known one.
var noUserHash = sync.OnceValue(func() []byte {
	hash, _ := bcrypt.GenerateFromPassword(randomBytes(16), bcrypt.DefaultCost) // fails only for a bad cost or length
	return hash
})

// authenticate returns the user when the password is right.
func (s *userStore) authenticate(username, password string) (user, bool) {
	u, known := s.find(func(u user) bool { return u.Username == username })
	hash := noUserHash()
	if known {
		hash = []byte(u.PasswordHash)
	}
	if err := bcrypt.CompareHashAndPassword(hash, []byte(password)); err != nil || !known {
		return user{}, false
	}
	return u, true
}

func readUsers(path string) ([]user, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the users' file: %w", err)
	}
	var users []user
	if err := yaml.UnmarshalStrict(data, &users); err != nil {
		return nil, fmt.Errorf("cannot parse the users' file %q: %w", path, err)
	}
	names, subjects := map[string]bool{}, map[string]bool{}
	for _, u := range users {
		if !usernameRE.MatchString(u.Username) {
			return nil, fmt.Errorf("cannot use the users' file %q: %w", path, invalidUsername(u.Username))
		}
		if names[u.Username] || subjects[u.subject()] {
			return nil, fmt.Errorf("cannot use the users' file %q: the name or id of %q stands there twice", path, u.Username)
		}
		if _, err := bcrypt.Cost([]byte(u.PasswordHash)); err != nil {
			return nil, fmt.Errorf("cannot use the users' file %q: passwordHash of %q is no bcrypt hash: %w", path, u.Username, err)
		}
		names[u.Username], subjects[u.subject()] = true, true
	}
	return users, nil
}

func invalidUsername(name string) error {
	return fmt.Errorf("user name %q is malformed: want at most 63 lower-case letters, digits, '-', '.', '_' or '@', with a letter or digit at both ends", name)
}

// AddUser adds a user with a fresh random id to the file, which is made when it is
// missing. A running provider sees the user at the next sign-in. The password must have
// 8 to 72 bytes (the most that bcrypt takes).
func AddUser(file, username, email string, groups []string, password string) error {
	if !usernameRE.MatchString(username) {
		return invalidUsername(username)
	}
	if len(password) < 8 || len(password) > 72 {
		return fmt.Errorf("password for %q must have 8 to 72 bytes", username)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	if err != nil {
		return fmt.Errorf("cannot hash the password: %w", err)
	}
	return change(file, func(users []user) ([]user, error) {
		if slices.ContainsFunc(users, func(u user) bool { return u.Username == username }) {
			return nil, fmt.Errorf("user %q already exists in %q", username, file)
		}
		return append(users, user{
			Username:     username,
			ID:           hex.EncodeToString(randomBytes(16)),
			Email:        email,
			Groups:       groups,
			PasswordHash: string(hash),
		}), nil
	})
}

// RemoveUser removes a user from the file. A running provider lets them sign in no more and
// refreshes none of their tokens; those that they have last until they expire. A user who is
// added again under the name has another id, so what was given out before stays worthless.
func RemoveUser(file, username string) error {
	return change(file, func(users []user) ([]user, error) {
		kept := slices.DeleteFunc(slices.Clone(users), func(u user) bool { return u.Username == username })
		if len(kept) == len(users) {
			return nil, fmt.Errorf("there is no user %q in %q", username, file)
		}
		return kept, nil
	})
}

// change replaces the users in the file, which is made when it is missing.
func change(file string, f func([]user) ([]user, error)) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	unlock, err := lock(file + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	users, err := readUsers(file)
	if err != nil {
		return err
	}
	if users, err = f(users); err != nil {
		return err
	}
	data, err := yaml.Marshal(users)
	if err != nil {
		return fmt.Errorf("cannot encode the users: %w", err)
	}
	return atomicfile.Write(file, data, 0o600)
}

// lock waits for an exclusive lock, so that two commands at once lose no user.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the users' file: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("cannot lock %q: %w", path, errors.Join(err, f.Close()))
	}
	// Closing gives the lock back.
	return func() { _ = f.Close() }, nil
}
