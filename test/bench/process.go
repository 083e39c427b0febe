package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// ticksPerSecond is the unit of CPU times in /proc on Linux (USER_HZ).
	ticksPerSecond = 100
	// stopGrace is how long a process may take to end before it is killed.
	stopGrace = 20 * time.Second
)

// process is a server that runs beside the benchmark.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
	// seen is closed when the line that was waited for has been written.
	seen chan struct{}
}

// start runs a command with its output in dir/name.log. If mark is not empty, seen is
// closed when a line contains it.
func start(ctx context.Context, dir, name, mark string, argv []string, env ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{}), seen: make(chan struct{})}
	file, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), argv[0], argv[1:]...)
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), env...)
	// It dies with the benchmark, whatever becomes of that.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	p.cmd.Stdout, p.cmd.Stderr = writer, writer
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start %s: %w", name, err), file.Close(), reader.Close(), writer.Close())
	}
	_ = writer.Close()
	go p.copy(reader, file, mark)
	go func() {
		_ = p.cmd.Wait() // how it ended stands in its log
		close(p.done)
	}()
	return p, nil
}

func (p *process) copy(reader, file *os.File, mark string) {
	defer reader.Close()
	defer file.Close()
	once := sync.OnceFunc(func() { close(p.seen) })
	lines := bufio.NewReader(reader)
	for {
		line, err := lines.ReadString('\n')
		if mark != "" && strings.Contains(line, mark) {
			once()
		}
		_, _ = file.WriteString(line) // a log that is cut short fails nothing
		if err != nil {
			return
		}
	}
}

// ended returns an error with the end of the log once the process is gone.
func (p *process) ended() error {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err
	}
	const tail = 2000
	return fmt.Errorf("%s has ended; its log ends with:\n%s", p.name, data[max(0, len(data)-tail):])
}

// stop ends the process and waits until it is gone.
func (p *process) stop() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
	case <-time.After(stopGrace):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// cpu is the CPU time that the process has used so far.
func (p *process) cpu() (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may contain anything; fields are counted after it.
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("cannot read CPU time of %s", p.name)
	}
	var ticks int64
	for _, field := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// rss is the resident memory of the process in bytes.
func (p *process) rss() (float64, error) { return p.memory("VmRSS") }

// memory is one of the sizes in /proc/PID/status, in bytes: VmRSS, RssAnon for what of it
// is not backed by files, VmHWM for the most it ever was.
func (p *process) memory(size string) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, size+":"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("cannot read the memory of %s", p.name)
}

// cpuOf returns how many CPU seconds the process uses while f runs.
func (p *process) cpuOf(f func() error) (float64, error) {
	before, err := p.cpu()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := p.cpu()
	return (after - before).Seconds(), err
}

// eventually polls f until it is true.
func eventually(ctx context.Context, what string, interval time.Duration, f func(context.Context) (bool, error)) error {
	var last error
	for {
		ok, err := f(ctx)
		if ok {
			return nil
		}
		if err != nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waiting until %s: %w", what, ctx.Err()), last)
		case <-time.After(interval):
		}
	}
}
