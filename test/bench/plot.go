package bench

import (
	"fmt"
	"math"
	"strings"
)

// series is one line of a plot.
type series struct {
	name string
	x, y []float64
}

const (
	plotWidth, plotHeight = 480, 300
	plotLeft, plotRight   = 64, 16
	plotTop, plotBottom   = 36, 44
	plotInnerW            = plotWidth - plotLeft - plotRight
	plotInnerH            = plotHeight - plotTop - plotBottom
	plotColours           = "#1f6feb #d1242f #1a7f37 #8250df"
)

// plot draws lines over a logarithmic x axis, from 0 on the y axis, as SVG.
func plot(title, unit string, lines []series) string {
	var b strings.Builder
	maxX, maxY := 10.0, 0.0
	for _, l := range lines {
		for i := range l.x {
			maxX, maxY = max(maxX, l.x[i]), max(maxY, l.y[i])
		}
	}
	maxY = niceAbove(maxY)
	px := func(x float64) float64 { return plotLeft + plotInnerW*math.Log10(max(x, 1))/math.Log10(maxX) }
	py := func(y float64) float64 { return plotTop + plotInnerH*(1-y/maxY) }
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11" role="img" aria-label="%s">`+"\n", plotWidth, plotHeight, title)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<text x="%d" y="16" font-size="13" font-weight="bold">%s, %s</text>`+"\n", plotLeft, title, unit)
	const ticks = 4
	for i := range ticks + 1 {
		y := maxY * float64(i) / ticks
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#d0d7de"/>`, plotLeft, plotWidth-plotRight, py(y), py(y))
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="end">%.3g</text>`+"\n", plotLeft-6, py(y)+4, y)
	}
	for x := 1.0; x <= maxX; x *= 10 {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%.0f</text>`+"\n", px(x), plotHeight-plotBottom+16, x)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">workspaces</text>`+"\n", plotLeft+plotInnerW/2, plotHeight-8)
	colours := strings.Fields(plotColours)
	for n, l := range lines {
		colour := colours[n%len(colours)]
		var points []string
		for i := range l.x {
			points = append(points, fmt.Sprintf("%.1f,%.1f", px(l.x[i]), py(l.y[i])))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, px(l.x[i]), py(l.y[i]), colour)
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", strings.Join(points, " "), colour)
		fmt.Fprintf(&b, `<text x="%d" y="28" fill="%s">%s</text>`+"\n", plotLeft+n*140, colour, l.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// niceAbove is the next of 1, 2, 4, 5, 8 times a power of ten that is not below y.
func niceAbove(y float64) float64 {
	if y <= 0 {
		return 1
	}
	base := math.Pow(10, math.Floor(math.Log10(y)))
	for _, f := range []float64{1, 2, 4, 5, 8, 10} {
		if f*base >= y {
			return f * base
		}
	}
	return y
}
