// Package nearest finds the name that someone probably meant.
package nearest

import "strings"

// To returns the candidate nearest to what was typed, or "" when none is near: at most
// a third of the letters differ (one in short names), or one begins with the other.
func To(typed string, candidates []string) string {
	best, bestDistance := "", max(1, len(typed)/3)+1
	for _, c := range candidates {
		d := distance(typed, c)
		if len(typed) > 2 && (strings.HasPrefix(c, typed) || strings.HasPrefix(typed, c)) {
			d = min(d, 1)
		}
		if d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j+1]+1, row[j]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
