#!/usr/bin/env bash
# Runs go test with the given arguments. Prints a line per test, the whole output of the
# ones that fail, and once more at the end what failed and what it said: the servers that
# tests run in their own process log a lot between.
set -uo pipefail
cd "$(dirname "$0")/.."

events=$(mktemp)
trap 'rm -f "$events"' EXIT
bin/gotestsum --format testname --hide-summary=output,skipped --jsonfile "$events" -- "$@"
code=$?
if [ "$code" != 0 ]; then
  echo "What failed, and what it said:"
  grep -hoE '"Output":"( *--- FAIL: |    +[a-zA-Z0-9_]+_test\.go:[0-9]+: |panic: )([^"\\]|\\.)*' "$events" |
    sed -E 's/^"Output":"//; s/\\n$//; s/\\"/"/g' | cut -c1-500 | tail -n 60
fi
exit "$code"
