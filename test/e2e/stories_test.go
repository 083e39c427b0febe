package e2e

import "testing"

// TestLoginStory and TestWorkspacesStory run the demos that need no cluster and no root.

func TestLoginStory(t *testing.T) { script(t, "login") }

func TestWorkspacesStory(t *testing.T) { script(t, "workspaces") }
