"""GPU architectures and devices as frozen records of facts."""
