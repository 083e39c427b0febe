// Package nearest finds the name that someone probably meant.
package nearest

import "strings"

// To returns the candidate nearest to what was typed, or "" when none is near: at most
// a third of the letters differ (two in short names, one in very short ones), or one
// begins with the other.
func To(typed string, candidates []string) string {
	allowed := max(2, len(typed)/3)
	if len(typed) < 4 {
		allowed = 1
	}
	best, bestDistance := "", allowed+1
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
