package idp

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// NewCommand returns `kcp idp`, which keeps the users of the embedded provider.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "idp",
		Short: "Keep the users of the embedded identity provider",
		Args:  cobra.NoArgs,
	}
	var root string
	cmd.PersistentFlags().StringVar(&root, "root-directory", ".kcp", "directory of the server's files, as given to kcp start")
	cmd.AddCommand(newAddUser(&root), newRemoveUser(&root), newListUsers(&root))
	return cmd
}

// usersFile returns the file of a server's users. A server's directory is there once it was
// started; where there is none, the users of another one would be looked for in vain.
func usersFile(root string) (string, error) {
	if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("no server was started in --root-directory %q: give the one that kcp start printed", root)
	}
	return filepath.Join(root, "idp", UsersFile), nil
}

func newAddUser(root *string) *cobra.Command {
	var email string
	var groups []string
	cmd := &cobra.Command{
		Use:   "add-user NAME",
		Short: "Add a user, with a password from the terminal or the first line of stdin",
		Example: `  kcp idp add-user alice --email alice@example.com --groups dev,ops
  kcp idp add-user ci --root-directory /var/lib/kcp < password.txt`,
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := usersFile(*root)
			if err != nil {
				return err
			}
			password, err := readPassword(cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := AddUser(file, args[0], email, groups, password); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "user %q added\n", args[0])
			return err
		},
	}
	cmd.Flags().StringVar(&email, "email", "", "the user's e-mail address")
	cmd.Flags().StringSliceVar(&groups, "groups", nil, "groups of the user; they appear to the server as oidc:<group>")
	return cmd
}

func newRemoveUser(root *string) *cobra.Command {
	return &cobra.Command{
		Use:          "remove-user NAME",
		Short:        "Remove a user; tokens that they have last until they expire, at most an hour",
		Example:      `  kcp idp remove-user alice`,
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := usersFile(*root)
			if err != nil {
				return err
			}
			if err := RemoveUser(file, args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "user %q removed\n", args[0])
			return err
		},
	}
}

func newListUsers(root *string) *cobra.Command {
	return &cobra.Command{
		Use:          "list-users",
		Short:        "List the users, with their e-mail addresses and groups",
		Example:      `  kcp idp list-users`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := usersFile(*root)
			if err != nil {
				return err
			}
			users, err := readUsers(file)
			if err != nil {
				return err
			}
			out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 3, ' ', 0)
			fmt.Fprintln(out, "NAME\tEMAIL\tGROUPS")
			for _, u := range users {
				fmt.Fprintf(out, "%s\t%s\t%s\n", u.Username, cmp.Or(u.Email, "<none>"), cmp.Or(strings.Join(u.Groups, ","), "<none>"))
			}
			return out.Flush()
		},
	}
}

// readPassword asks twice on a terminal, without echo; otherwise it reads one line.
func readPassword(in io.Reader, prompt io.Writer) (string, error) {
	f, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		line, err := bufio.NewReader(in).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("cannot read the password from stdin: %w", err)
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			return "", errors.New("no password on stdin: run this on a terminal, or give it as the first line")
		}
		return line, nil
	}
	var typed [2]string
	for i, text := range []string{"Password: ", "Again: "} {
		if _, err := fmt.Fprint(prompt, text); err != nil {
			return "", err
		}
		b, err := term.ReadPassword(int(f.Fd()))
		if err != nil {
			return "", fmt.Errorf("cannot read the password: %w", err)
		}
		if _, err := fmt.Fprintln(prompt); err != nil {
			return "", err
		}
		typed[i] = string(b)
	}
	if typed[0] != typed[1] {
		return "", errors.New("the two passwords differ")
	}
	return typed[0], nil
}
