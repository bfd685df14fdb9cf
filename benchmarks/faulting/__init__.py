"""The parts of the fault campaign, see benchmarks/faults.py."""
