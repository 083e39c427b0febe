package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// command does what an argument says in place of serving, for kubectl exec: there is
// nothing else in the image.
func command(args []string, in io.Reader, out io.Writer) error {
	switch args[0] {
	case "print":
		_, err := fmt.Fprintln(out, strings.Join(args[1:], " "))
		return err
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "exit":
		// kubectl exec passes the code on.
		os.Exit(3)
	}
	return fmt.Errorf("there is no command %q: print WORDS, cat, exit", args[0])
}
