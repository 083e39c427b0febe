# shellcheck shell=bash
# Helpers of the demo scripts: what a viewer sees (step, run, say), what a test needs
# (assert, wait_until), and processes (in_ns, spawn).
#
# NETNS      network namespace in which everything runs; a story that needs no cluster
#            sets it empty before it sources this file, and runs on the machine's loopback
# KCP_BIN    folder of the binaries (required)
# DEMO_SPEED 0 for tests; otherwise seconds to pause before each command (default 0.3)
# DEMO_DIR   folder for state and logs (default: a fresh temporary one)

set -euo pipefail

: "${KCP_BIN:?set KCP_BIN to the folder of the binaries (make demo does)}"
: "${DEMO_SPEED:=0.3}"
: "${NETNS=${DEMO_NETNS:-kcp-demo}}"
if [ -z "${DEMO_DIR:-}" ]; then
  DEMO_DIR=$(mktemp -d "${TMPDIR:-/tmp}/kcp-demo.XXXXXX")
fi
mkdir -p "$DEMO_DIR"
DEMO_DIR=$(cd "$DEMO_DIR" && pwd)
export PATH="$KCP_BIN:$PATH"
declare -A PID=()
STEP="start"

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
  BOLD=$'\e[1m' DIM=$'\e[2m' RED=$'\e[31m' GREEN=$'\e[32m' RESET=$'\e[0m'
else
  BOLD='' DIM='' RED='' GREEN='' RESET=''
fi

step() { STEP=$1; printf '\n%s== %s%s\n' "$BOLD" "$1" "$RESET"; }
say() { printf '%s# %s%s\n' "$DIM" "$*" "$RESET"; }

# shown prints a command line as a person would type it: an argument with spaces in quotes,
# and files of the story by their names.
shown() {
  local word out=""
  for word in "$@"; do
    word=${word//"$here/"/} word=${word//"$DEMO_DIR/"/}
    case $word in
      *[\ \*\;\&\|\<\>\(\)\{\}\~]*) out+=" '$word'" ;;
      *) out+=" $word" ;;
    esac
  done
  printf '%s' "${out# }"
}

# run shows a command and runs it.
run() {
  printf '%s$ %s%s\n' "$GREEN" "$(shown "$@")" "$RESET"
  [ "$DEMO_SPEED" = 0 ] || sleep "$DEMO_SPEED"
  in_ns "$@"
}

# in_ns runs a command in the network namespace, where there is one.
in_ns() {
  if [ -z "$NETNS" ]; then
    "$@"
  else
    nsenter --net="/run/netns/$NETNS" -- "$@"
  fi
}

# spawn NAME CMD... starts a process in the namespace; its output goes to NAME.log. The
# pid is the process's own, since nsenter executes it.
spawn() {
  local name=$1 enter=()
  shift
  [ -z "$NETNS" ] || enter=(nsenter --net="/run/netns/$NETNS" --)
  "${enter[@]}" "$@" >>"$DEMO_DIR/$name.log" 2>&1 </dev/null &
  PID[$name]=$!
}

# refused DESCRIPTION WANT COMMAND... shows a command that must fail with a message that
# holds WANT.
refused() {
  local what=$1 want=$2 code=0
  shift 2
  run "$@" >"$DEMO_DIR/refused.out" 2>&1 || code=$?
  cat "$DEMO_DIR/refused.out"
  [ "$code" -ne 0 ] || fail "$what: it was not refused"
  grep -qF -- "$want" "$DEMO_DIR/refused.out" || fail "$what: the message does not say '$want'"
  say "ok: $what"
}

alive() { kill -0 "${PID[$1]}" 2>/dev/null; }

# stop NAME [SIGNAL] ends a process that spawn started, and waits for it.
stop() {
  local pid=${PID[$1]:-}
  [ -n "$pid" ] || return 0
  kill "-${2:-TERM}" "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
  unset "PID[$1]"
}

fail() {
  printf '\n%sFAILED in "%s": %s%s\n' "$RED" "$STEP" "$*" "$RESET" >&2
  STEP=''
  exit 1
}

# assert DESCRIPTION COMMAND... fails when the command does.
assert() {
  local what=$1
  shift
  "$@" || fail "$what"
  say "ok: $what"
}

# assert_eq DESCRIPTION WANT GOT
assert_eq() {
  [ "$2" = "$3" ] || fail "$1: want '$2', got '$3'"
  say "ok: $1"
}

# wait_until SECONDS DESCRIPTION COMMAND... polls the command.
wait_until() {
  local limit=$1 what=$2 end
  shift 2
  end=$((SECONDS + limit))
  until "$@" >"$DEMO_DIR/wait.out" 2>&1; do
    if [ "$SECONDS" -ge "$end" ]; then
      tail -n 20 "$DEMO_DIR/wait.out" >&2
      fail "$what: not within $limit s"
    fi
    sleep 0.2
  done
  say "ok: $what"
}

# on_exit runs cleanup and, after a failure, shows the end of each log.
on_exit() {
  local code=$?
  trap - EXIT
  if [ "$code" -ne 0 ]; then
    # A command that the script did not expect to fail.
    [ -z "$STEP" ] || printf '\n%sFAILED in "%s": a command ended with %s%s\n' "$RED" "$STEP" "$code" "$RESET" >&2
    local log
    for log in "$DEMO_DIR"/*.log; do
      [ -s "$log" ] || continue
      printf '\n%s-- last lines of %s%s\n' "$DIM" "$log" "$RESET" >&2
      tail -n "${DEMO_LOG_LINES:-15}" "$log" | cut -c1-300 >&2
    done
    printf '\nState and logs are in %s\n' "$DEMO_DIR" >&2
  fi
  cleanup || true
  exit "$code"
}
trap on_exit EXIT
trap 'exit 130' INT TERM
