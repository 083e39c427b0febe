package console

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
	"k8s.io/utils/clock"
)

// Progress shows what a long command waits for: on a terminal one line that is written
// over, with the time that has passed; elsewhere a line for each change.
type Progress struct {
	console *Console
	clock   clock.WithTicker
	started time.Time
	stop    chan struct{}
	stopped chan struct{}

	mu      sync.Mutex
	current string
	drawn   bool
}

// Progress begins one. Done must be called at its end, before anything else is written.
func (c *Console) Progress(clk clock.WithTicker) *Progress {
	p := &Progress{console: c, clock: clk, started: clk.Now()}
	if c.live() {
		p.stop, p.stopped = make(chan struct{}), make(chan struct{})
		go p.tick()
	}
	return p
}

// live reports whether stderr is a terminal on which lines can be written over.
func (c *Console) live() bool { return IsTerminal(c.Err) && c.Env("TERM") != "dumb" }

// Show says what is waited for now.
func (p *Progress) Show(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	if text == p.current {
		return
	}
	p.current = text
	if p.stop == nil {
		p.console.Note("%s", text)
		return
	}
	p.draw()
}

// Live is Show where lines are written over, and says nothing elsewhere: for a summary of
// what the lines of Note tell.
func (p *Progress) Live(format string, args ...any) {
	if p.stop != nil {
		p.Show(format, args...)
	}
}

// Note writes a line that stays.
func (p *Progress) Note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	p.console.Note(format, args...)
	if p.stop != nil && p.current != "" {
		p.draw()
	}
}

// Done ends it and takes the line away.
func (p *Progress) Done() {
	if p.stop != nil {
		close(p.stop)
		<-p.stopped
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
}

func (p *Progress) tick() {
	defer close(p.stopped)
	ticker := p.clock.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-ticker.C():
			p.mu.Lock()
			if p.current != "" {
				p.draw()
			}
			p.mu.Unlock()
		}
	}
}

const eraseLine = "\r\x1b[K"

func (p *Progress) draw() {
	line := fmt.Sprintf("%s (%s)", p.current, p.clock.Since(p.started).Truncate(time.Second))
	// A line that wraps could not be erased.
	if width := p.console.width(); len([]rune(line)) >= width {
		line = string([]rune(line)[:width-1])
	}
	_, _ = fmt.Fprint(p.console.Err, eraseLine+strings.ReplaceAll(line, "\n", " "))
	p.drawn = true
}

func (p *Progress) erase() {
	if p.drawn {
		_, _ = fmt.Fprint(p.console.Err, eraseLine)
		p.drawn = false
	}
}

// width returns the width of the terminal at stderr; one that does not say has 80.
func (c *Console) width() int {
	if f, ok := c.Err.(interface{ Fd() uintptr }); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 1 {
			return width
		}
	}
	return 80
}
