"""What the benchmarks of query replication are made of."""
