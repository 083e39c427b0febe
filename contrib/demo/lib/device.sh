#!/usr/bin/env bash
# Another device for scripts: reads the page and the code that kubectl kcp login --device
# shows, and enters the code there as a person would.
#
# device.sh FILE   (what the command has written)
# DEMO_USER, DEMO_PASSWORD, DEMO_CA (the provider's certificate authority)
set -euo pipefail

jar=$(mktemp)
trap 'rm -f "$jar"' EXIT
get() { curl -fsS --cacert "$DEMO_CA" --cookie "$jar" --cookie-jar "$jar" "$@"; }

page=$(sed -n 's/^    \(https:.*\)$/\1/p' "$1" | head -n 1)
code=$(sed -n 's/^    code: //p' "$1" | head -n 1)
csrf=$(get "$page" | sed -n 's/.*name="csrf" value="\([^"]*\)".*/\1/p' | head -n 1)
get -o /dev/null \
  --data-urlencode "csrf=$csrf" \
  --data-urlencode "user_code=$code" \
  --data-urlencode "username=$DEMO_USER" \
  --data-urlencode "password=$DEMO_PASSWORD" \
  --data-urlencode "action=allow" \
  "$page"
