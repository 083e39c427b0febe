#!/usr/bin/env bash
# Records a story of contrib/demo for the README: contrib/demo/STORY/demo.cast (asciinema)
# and demo.svg. It needs the Debian package asciinema, and npx for svg-term-cli.
#
# KCP_BIN    folder of the binaries (default bin)
# RECORD_TO  folder for both files (default contrib/demo/STORY)
set -euo pipefail

story=${1:?usage: hack/record.sh STORY}
root=$(cd "$(dirname "$0")/.." && pwd)
run=$root/contrib/demo/$story/run.sh
to=${RECORD_TO:-$root/contrib/demo/$story}
[ -x "$run" ] || { echo "error: there is no story $story" >&2; exit 1; }
limit=300000

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# What a viewer sees shall not tell whose machine it was: the story's folder has a plain
# name, and the environment of whoever records is not kept.
export DEMO_DIR=/tmp/demo DEMO_SPEED=${DEMO_SPEED:-0.4} DEMO_CORDON_SECONDS=${DEMO_CORDON_SECONDS:-5}
export KCP_BIN=${KCP_BIN:-$root/bin} RECORD_RUN=$run RECORD_WORK=$work
[ ! -e "$DEMO_DIR" ] || { echo "error: $DEMO_DIR exists; remove it" >&2; exit 1; }

# asciinema exits with 0 whatever the command does, so its code goes to a file.
asciinema rec -q -y --cols 100 --rows 30 --env "" \
  -c 'sh -c '\''"$RECORD_RUN"; echo $? >"$RECORD_WORK/code"'\' "$work/raw.cast" </dev/null
code=$(cat "$work/code")
[ "$code" = 0 ] || { echo "error: the story ended with code $code" >&2; exit 1; }

# The header keeps the size and the title only. What comes within a tenth of a second is one
# event, since each is a picture of its own in the SVG. Nobody watches a wait: none is longer
# than a second; but the end stays for three. Times need no more than milliseconds.
jq -c -s --arg title "kcp: $story" '
  (.[0] | {version, width, height, title: $title}),
  ((reduce .[1:][] as [$at, $kind, $data] ([];
     if length > 0 and .[-1][1] == $kind and $at - .[-1][0] < 0.1
     then .[-1][2] += $data else . + [[$at, $kind, $data]] end)) as $events |
   foreach $events[] as [$at, $kind, $data] ({was: 0, now: 0};
     {now: (.now + ([$at - .was, 1] | min)), was: $at};
     [(.now * 1000 | round / 1000), $kind, $data]))' \
  "$work/raw.cast" >"$work/demo.cast"
tail -n 1 "$work/demo.cast" | jq -c '[.[0] + 3, "o", "\u001b[0m"]' >>"$work/demo.cast"
if grep -nE "$root|$HOME/|$KCP_BIN" "$work/demo.cast"; then
  echo "error: the recording shows paths of this machine" >&2
  exit 1
fi
npx --yes svg-term-cli --in "$work/demo.cast" --out "$work/demo.svg" --window --width 100 --height 30
for file in demo.cast demo.svg; do
  size=$(stat -c %s "$work/$file")
  echo "$file: $size bytes"
  [ "$size" -le "$limit" ] || { echo "error: $file is larger than $limit bytes" >&2; exit 1; }
done
install -m 0644 "$work/demo.cast" "$work/demo.svg" "$to/"
