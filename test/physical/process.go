package physical

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pollInterval is how often conditions outside this process are looked at.
const pollInterval = 50 * time.Millisecond

// process identifies a running process beyond the reuse of its pid.
type process struct {
	Pid int `json:"pid"`
	// Start is field 22 of /proc/PID/stat: clock ticks from boot to its start.
	Start uint64 `json:"start"`
	// Boot is the boot the two above belong to.
	Boot string `json:"boot"`
}

// identify returns the identity of a running pid.
func identify(pid int) (process, error) {
	_, start, err := procStat(pid)
	if err != nil {
		return process{}, err
	}
	boot, err := bootID()
	if err != nil {
		return process{}, err
	}
	return process{Pid: pid, Start: start, Boot: boot}, nil
}

// alive says whether exactly this process still runs. A zombie does not.
func (p process) alive() bool {
	if p.Pid <= 0 {
		return false
	}
	state, start, err := procStat(p.Pid)
	if err != nil || start != p.Start || state == "Z" || state == "X" {
		return false
	}
	boot, err := bootID()
	return err == nil && boot == p.Boot
}

// stop sends SIGTERM, and SIGKILL if the process is still there after grace. It
// returns when the process has ended.
func (p process) stop(ctx context.Context, grace time.Duration) error {
	if !p.alive() {
		return nil
	}
	if err := syscall.Kill(p.Pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("cannot signal process %d: %w", p.Pid, err)
	}
	if err := waitUntil(ctx, grace, func() bool { return !p.alive() }); err == nil {
		return nil
	}
	if !p.alive() {
		return nil
	}
	if err := syscall.Kill(p.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("cannot kill process %d: %w", p.Pid, err)
	}
	if err := waitUntil(ctx, grace, func() bool { return !p.alive() }); err != nil {
		return fmt.Errorf("process %d does not end: %w", p.Pid, err)
	}
	return nil
}

// procStat reads the state letter and the start time out of /proc/PID/stat.
func procStat(pid int) (state string, start uint64, err error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", 0, fmt.Errorf("cannot identify process %d: %w", pid, err)
	}
	return parseStat(string(data))
}

// parseStat takes the fields from behind the command, which may itself contain
// spaces and parentheses.
func parseStat(stat string) (state string, start uint64, err error) {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return "", 0, fmt.Errorf("malformed process status %q", stat)
	}
	fields := strings.Fields(stat[end+1:])
	const stateField, startField = 0, 19 // fields 3 and 22 of proc(5)
	if len(fields) <= startField {
		return "", 0, fmt.Errorf("malformed process status %q", stat)
	}
	start, err = strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return "", 0, fmt.Errorf("malformed process status %q: %w", stat, err)
	}
	return fields[stateField], start, nil
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot identify this boot: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// start runs a command in a session of its own, so that it survives this
// process, with its output appended to log, and records it in the file record.
func start(cmd *exec.Cmd, log, record string) (process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return process{}, fmt.Errorf("cannot open log: %w", err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return process{}, fmt.Errorf("cannot start %q: %w", cmd.Args, err)
	}
	p, err := identify(cmd.Process.Pid)
	// Reaps the process should it end while this one lives; how it ended is in
	// its log, and that it ended is seen by alive.
	go func() { _ = cmd.Wait() }()
	if err != nil {
		return process{}, err
	}
	data, err := json.Marshal(p)
	if err != nil {
		return process{}, fmt.Errorf("cannot record process %d: %w", p.Pid, err)
	}
	if err := os.WriteFile(record, data, 0o600); err != nil {
		return process{}, errors.Join(fmt.Errorf("cannot record process %d: %w", p.Pid, err), cmd.Process.Kill())
	}
	return p, nil
}

// recorded returns the process recorded in a file, or one that is not alive.
func recorded(record string) (process, error) {
	data, err := os.ReadFile(record)
	if errors.Is(err, fs.ErrNotExist) {
		return process{}, nil
	}
	if err != nil {
		return process{}, fmt.Errorf("cannot read process record: %w", err)
	}
	p := process{}
	if err := json.Unmarshal(data, &p); err != nil {
		return process{}, fmt.Errorf("cannot read process record %q: %w", record, err)
	}
	return p, nil
}

// waitUntil polls done and returns nil as soon as it is true.
func waitUntil(ctx context.Context, timeout time.Duration, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if done() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
