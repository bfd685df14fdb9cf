"""What benchmarks/fuzz.py feeds to memfluence: one module for each kind of file, and the process that reads it."""
