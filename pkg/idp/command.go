package idp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

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
	cmd.AddCommand(newAddUser(&root))
	return cmd
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
			file := filepath.Join(*root, "idp", UsersFile)
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
			return "", errors.New("no password on stdin")
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
