"""What benchmarks of offloaded ledgers share: real text, a server, the job, questions to two engines."""
