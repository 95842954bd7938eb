"""What all kernels rest on: compilation, exact sums, random numbers by key."""
